// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/private_file.hpp"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace faultline::glue::private_file_test {
namespace {

class PrivateFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string form = testing::TempDir() + "private_file.XXXXXX";
    ASSERT_NE(mkdtemp(form.data()), nullptr);
    folder_ = form;
    old_mask_ = umask(022);
  }
  void TearDown() override {
    umask(old_mask_);
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] std::string path(const char* name) const { return folder_ + "/" + name; }
  [[nodiscard]] static mode_t mode_of(const std::string& file) {
    struct stat status {};
    return lstat(file.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
  }
  static void write_all(const std::string& file, const char* text) {
    const int fd = open_private_file(file);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(write(fd, text, 2), 2);
    close(fd);
  }

 private:
  std::string folder_;
  mode_t old_mask_ = 0;
};

std::string text_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_F(PrivateFile, IsItsOwnersAlone) {
  write_all(path("new"), "ab");
  EXPECT_EQ(mode_of(path("new")), 0600U);
  EXPECT_EQ(text_of(path("new")), "ab");
}

TEST_F(PrivateFile, BecomesItsOwnersAloneAndEmpty) {
  std::ofstream(path("old")) << "what was there before";
  ASSERT_EQ(chmod(path("old").c_str(), 0644), 0);
  write_all(path("old"), "ab");
  EXPECT_EQ(mode_of(path("old")), 0600U);
  EXPECT_EQ(text_of(path("old")), "ab");
}

TEST_F(PrivateFile, IsNotReachedThroughALink) {
  std::ofstream(path("other")) << "not to be lost";
  ASSERT_EQ(symlink(path("other").c_str(), path("link").c_str()), 0);
  EXPECT_EQ(open_private_file(path("link")), -1);
  EXPECT_EQ(errno, ELOOP);
  EXPECT_EQ(text_of(path("other")), "not to be lost");
}

}  // namespace
}  // namespace faultline::glue::private_file_test
