// SPDX-License-Identifier: BSD-3-Clause
// fork(2) in a process that can open no more files. userfaultfd's fork event creates a descriptor for the
// child's memory in the thread that reads the event. The forking thread waits until the event is read.
#include <sys/wait.h>

#include "tests/unit/odp/hooks/hooked_program.hpp"

namespace faultline::odp::test::fork_hooks_test {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 16 * kPage;

/// The bytes of both processes right after fork must be those of copy-on-write.
template <typename Fork>
int forks(bool full, Fork fork_process) {
  DomainConfig config;
  config.realtime_pager = false;
  HookedProgram program(config);
  const Mapping memory(kBytes / kPage);
  const Key key = program.add_region(memory.data(), memory.size());
  REQUIRE(program.peer_writes(key, memory.data(), kBytes, 1) == Outcome::done);
  if (full) use_up_descriptors();
  const pid_t child = fork_process();
  REQUIRE(child >= 0);
  if (child == 0) {
    bool own = true;
    for (size_t i = 0; i < kBytes; ++i) own &= memory.data()[i] == 1;
    std::memset(memory.data(), 2, kBytes);
    _exit(own ? 0 : 1);
  }
  REQUIRE(program.peer_writes(key, memory.data(), kBytes, 3) == Outcome::done);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  for (size_t i = 0; i < kBytes; ++i) REQUIRE(memory.data()[i] == 3);
  // The parent's memory is still watched.
  REQUIRE(munmap(memory.data(), kPage) == 0);
  REQUIRE(program.is_gone(key, memory.data(), kPage));
  return 0;
}

TEST(Fork, ReturnsWithAFullDescriptorTable) {
  run_program([] { return forks(true, fork); });
}
TEST(Fork, GivesEachProcessItsOwnBytes) {
  run_program([] { return forks(false, fork); });
}
/// _Fork(3) runs no handlers of pthread_atfork(3).
TEST(Fork, WithoutHandlersGivesEachProcessItsOwnBytes) {
  for (const bool full : {false, true}) run_program([full] { return forks(full, _Fork); });
}

}  // namespace
}  // namespace faultline::odp::test::fork_hooks_test
