// SPDX-License-Identifier: BSD-3-Clause
// The directory in which the processes of one user find each other, also if another user created it first.
#include "stack/base/runtime_directory.hpp"

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace faultline::glue::runtime_directory_test {
namespace {

namespace fs = std::filesystem;

class RuntimeDirectory : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "runtime.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }

  fs::path folder;
  std::string error;
};

TEST_F(RuntimeDirectory, IsMadeForThisUserAlone) {
  const std::string path = folder / "one";
  EXPECT_EQ(usable_directory({path}, error), path);
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
  EXPECT_EQ(usable_directory({path, folder / "two"}, error), path);
  EXPECT_FALSE(fs::exists(folder / "two"));
}

TEST_F(RuntimeDirectory, WhatAnotherUserMadeIsNotUsed) {
  const fs::path others = folder / "others";
  fs::create_directory(others);
  fs::permissions(others, fs::perms::owner_all);
  // Root in a container without capabilities may not chown either.
  if (chown(others.c_str(), 65534, 65534) != 0) {
    ASSERT_EQ(errno, EPERM);
    fs::remove(others);
    fs::create_directory_symlink(folder, others);
  }
  EXPECT_EQ(usable_directory({others, folder / "own"}, error), folder / "own");
  EXPECT_EQ(usable_directory({others}, error), "");
  EXPECT_NE(error.find("others must be a directory of this user's alone (mode 700)"), std::string::npos)
      << error;
}

TEST_F(RuntimeDirectory, ItsErrorSaysWhatToDo) {
  EXPECT_EQ(usable_directory({folder / "none/of these"}, error), "");
  EXPECT_NE(error.find("No such file or directory; set XDG_RUNTIME_DIR"), std::string::npos) << error;
}

TEST_F(RuntimeDirectory, OneThatOthersMayEnterIsNotUsed) {
  const fs::path open = folder / "open";
  fs::create_directory(open);
  fs::permissions(open, fs::perms::owner_all | fs::perms::others_read);
  EXPECT_EQ(usable_directory({open}, error), "");
  EXPECT_NE(error.find("XDG_RUNTIME_DIR"), std::string::npos) << error;
}

}  // namespace
}  // namespace faultline::glue::runtime_directory_test
