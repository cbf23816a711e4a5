// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stack/base/log.hpp"

namespace faultline::log_file_test {
namespace {

/// Each case runs in a process of its own, since the log has no way back to stderr.
class LogFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/faultline-test-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  template <typename Work>
  static void in_child(Work work) {
    const pid_t child = fork();
    if (child == 0) _exit(work() ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }

  std::filesystem::path folder_;
};

TEST_F(LogFile, HasTheProcessIdInItsName) {
  EXPECT_EQ(log_file_path("/tmp/a.log", 12), "/tmp/a.log");
  EXPECT_EQ(log_file_path("/tmp/%p/a-%p.log", 12), "/tmp/12/a-12.log");
  EXPECT_EQ(log_file_path("%p%p", 1), "11");
  EXPECT_EQ(log_file_path("a%", 1), "a%");
  EXPECT_EQ(log_file_path("%%p", 1), "%1");
}

TEST_F(LogFile, IsAppendedTo) {
  std::ofstream(path("a.log")) << "before\n";
  in_child([&] {
    if (!log_to_file(path("a.log")).empty()) return false;
    log().warn("a line");
    log().info("below the level");
    return true;
  });
  EXPECT_EQ(text("a.log"), "before\nfaultline: a line\n");
}

TEST_F(LogFile, IsReadableByItsOwnerAlone) {
  in_child([&] { return log_to_file(path("a.log")).empty(); });
  struct stat status {};
  ASSERT_EQ(stat(path("a.log").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
}

TEST_F(LogFile, IsTheChildsToo) {
  in_child([&] {
    if (!log_to_file(path("%p.log")).empty()) return false;
    std::filesystem::rename(path(std::to_string(getpid()) + ".log"), path("parent.log"));
    in_child([] {
      log().warn("of the child");
      return true;
    });
    log().warn("of the parent");
    return true;
  });
  EXPECT_EQ(text("parent.log"), "faultline: of the child\nfaultline: of the parent\n");
}

TEST_F(LogFile, OfSeveralThreadsAndProcessesHasWholeLines) {
  constexpr int kProcesses = 3, kThreads = 3, kLines = 50;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    if (!log_to_file(path("shared.log")).empty()) _exit(1);
    {
      std::vector<std::jthread> threads;
      for (int thread = 0; thread < kThreads; ++thread)
        threads.emplace_back([] {
          for (int line = 0; line < kLines; ++line) log().warn("{}", std::string(200, 'x'));
        });
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::ifstream file(path("shared.log"));
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines)
    EXPECT_EQ(line, "faultline: " + std::string(200, 'x'));
  EXPECT_EQ(lines, kProcesses * kThreads * kLines);
}

TEST_F(LogFile, ThatCannotBeOpenedLeavesTheLogOnStderr) {
  in_child([&] {
    const std::string error = log_to_file(path("none/a.log"));
    testing::internal::CaptureStderr();
    log().warn("a line");
    return error == "cannot append to " + path("none/a.log") +
                        ": No such file or directory; name a file in a folder that this user may write; "
                        "the log stays on stderr" &&
           testing::internal::GetCapturedStderr() == "faultline: a line\n";
  });
}

TEST_F(LogFile, ThatTheProgramHasClosedIsNotWrittenTo) {
  in_child([&] {
    const int next = dup(STDERR_FILENO);
    close(next);
    if (!log_to_file(path("a.log")).empty()) return false;
    // The program closes what is not its own, and opens a file that gets the number.
    close(next);
    std::ofstream other(path("other"));
    testing::internal::CaptureStderr();
    log().warn("a line");
    return testing::internal::GetCapturedStderr() == "faultline: a line\n";
  });
  EXPECT_EQ(text("other"), "");
  EXPECT_EQ(text("a.log"), "");
}

TEST_F(LogFile, OfAPipeWithoutAReaderIsRefused) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  in_child([&] { return !log_to_file(path("pipe")).empty(); });
}

}  // namespace
}  // namespace faultline::log_file_test
