// SPDX-License-Identifier: BSD-3-Clause
// Files that faultline-run finds in a build folder and in a distribution's layout.
#include "apps/run/find_files.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace faultline::run::find_files_test {
namespace {

class FindFiles : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/faultline-test-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    prefix = std::filesystem::canonical(pattern);
    std::filesystem::create_directories(prefix / "bin");
  }
  void TearDown() override { std::filesystem::remove_all(prefix); }

  std::string make(const std::string& name) {
    std::filesystem::create_directories((prefix / name).parent_path());
    std::ofstream(prefix / name) << "x";
    return prefix / name;
  }
  [[nodiscard]] std::string library(const std::string& libdir) const {
    return find_library(prefix / "bin", libdir);
  }

  std::filesystem::path prefix;
};

TEST_F(FindFiles, FindsTheLibraryInEachLibdir) {
  for (const std::string libdir : {"lib64", "lib", "lib/x86_64-linux-gnu"}) {
    EXPECT_EQ(library(libdir), "");
    const std::string plain = make(libdir + "/libfaultline.so.0");
    EXPECT_EQ(library(libdir), plain);
    const std::string dropin = make(libdir + "/faultline/libibverbs.so.1");
    EXPECT_EQ(library(libdir), dropin);
    EXPECT_EQ(library(prefix / libdir), dropin) << "an absolute libdir";
    EXPECT_EQ(library("elsewhere"), "");
  }
}

TEST_F(FindFiles, PrefersTheBuildFolder) {
  make("lib64/faultline/libibverbs.so.1");
  const std::string built = make("stack/abi/libibverbs.so.1");
  EXPECT_EQ(library("lib64"), built);
}

TEST_F(FindFiles, FindsASwitchThatCanBeRun) {
  const std::string path = make("bin/faultline-switch");
  if (geteuid() != 0) {
    EXPECT_EQ(find_switch(prefix / "bin"), "");
  }
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  EXPECT_EQ(find_switch(prefix / "bin"), path);
}

}  // namespace
}  // namespace faultline::run::find_files_test
