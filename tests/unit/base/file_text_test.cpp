// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/process/file_text.hpp"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace faultline::base::file_text_test {
namespace {

TEST(FileText, IsTheWholeFile) {
  const std::string path = testing::TempDir() + "file_text." + std::to_string(getpid());
  const std::string written = std::string(10'000, 'a') + std::string("\0b\n", 3);
  std::ofstream(path, std::ios::binary) << written;
  EXPECT_EQ(text_of_file(path), written);
  std::ofstream(path, std::ios::binary) << "";
  EXPECT_EQ(text_of_file(path), "");
  std::filesystem::remove(path);
  EXPECT_EQ(text_of_file(path), std::nullopt);
  EXPECT_EQ(errno, ENOENT);
}

// As of /proc/PID/stat once the process has ended: opened, and the read fails.
TEST(FileText, AReadThatFailsIsNoException) {
  EXPECT_EQ(text_of_file("/proc/self/mem"), std::nullopt);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(text_of_file(testing::TempDir()), std::nullopt);
  EXPECT_EQ(errno, EISDIR);
}

}  // namespace
}  // namespace faultline::base::file_text_test
