// SPDX-License-Identifier: BSD-3-Clause
// main() for tests of userfaultfd or pinning. If the kernel or a container's seccomp profile refuses either,
// the program is skipped with the reason. The programs of tests/environments run there instead.
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "odp/guards.hpp"

namespace {

constexpr int kSkipped = 77;  // meson reports a skipped test

bool are_guards_there() {
  const faultline::odp::GuardList list = faultline::odp::query_guards();
  bool all = true;
  for (size_t i = 0; i < list.count; ++i) {
    const faultline::odp::Guard& guard = list.guards[i];
    for (const char* const needed : {"userfaultfd", "pins"})
      if (std::strcmp(guard.name, needed) == 0 && guard.state == faultline::odp::GuardState::missing) {
        std::printf("SKIPPED: %s\n", guard.text.data());
        all = false;
      }
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!testing::GTEST_FLAG(list_tests)) {
    // In a child process, so that the probe leaves no state in the test process.
    const pid_t child = fork();
    if (child == 0) {
      const bool there = are_guards_there();
      std::fflush(nullptr);
      _exit(there ? 0 : kSkipped);
    }
    int status = -1;
    if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
        WEXITSTATUS(status) == kSkipped)
      return kSkipped;
  }
  return RUN_ALL_TESTS();
}
