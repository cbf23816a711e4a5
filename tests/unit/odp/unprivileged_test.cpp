// SPDX-License-Identifier: BSD-3-Clause
// The memory layer as an ordinary user: no CAP_IPC_LOCK, no CAP_SYS_PTRACE, no SCHED_FIFO. As root, each test
// forks a child that changes to user nobody.
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::unprivileged_test {
namespace {

constexpr size_t kPage = 4096;
constexpr uid_t kNobody = 65534;
constexpr int kSkipped = 77;

/// Runs `body` as an ordinary user in a child. `body` returns the line of a failed expectation, or 0.
template <typename Body>
void as_ordinary_user(rlim_t memlock_bytes, Body body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{memlock_bytes, memlock_bytes};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) _exit(250);
    // EPERM: root of a container without CAP_SETUID.
    if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0))
      _exit(errno == EPERM ? kSkipped : 251);
    const int line = body();
    if (line != 0) std::fprintf(stderr, "%s:%d: failed as uid %u\n", __FILE__, line, geteuid());
    std::fflush(nullptr);
    _exit(line != 0 ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped)
    GTEST_SKIP() << "root may not become another user here";
  EXPECT_EQ(status, 0);
}

#define REQUIRE(condition) \
  if (!(condition)) return __LINE__

int munmap_and_dontneed_while_polling() {
  auto domain = make_domain();
  const Mapping memory(64);
  const auto result = domain->register_region({.domain = 1,
                                               .address = memory.address(),
                                               .length_bytes = memory.size(),
                                               .iova = 0,
                                               .access = kLocalWrite | kRemoteWrite | kOnDemand});
  REQUIRE(result.error == 0);
  auto session = domain->attach_engine();
  const Target target{result.key, 1, kRemoteWrite};
  const std::vector<uint8_t> bytes(memory.size(), 1);
  REQUIRE(write_all(*session, target, 0, bytes) == Outcome::done);
  std::atomic<bool> over{false};
  std::thread program([&] {
    madvise(memory.data(), kPage, MADV_DONTNEED);
    munmap(memory.data() + 8 * kPage, kPage);
    over = true;
  });
  while (!over) session->enter();
  program.join();
  // The program continues once its event is read; the gate is lowered a little later. Until then every access
  // is a miss.
  Outcome unmapped = Outcome::miss;
  for (int turn = 0; turn < 10'000'000 && unmapped == Outcome::miss; ++turn) {
    session->enter();
    unmapped = session->probe(target, 8 * kPage, 1);
  }
  const Outcome dropped = session->probe(target, 0, 1);
  session->leave();
  REQUIRE(unmapped == Outcome::violation);
  REQUIRE(dropped == Outcome::miss);
  REQUIRE(domain->counters().num_invalidations == 2);
  return 0;
}

TEST(Unprivileged, TheMonitorWorks) {
  as_ordinary_user(rlim_t{8} << 20, munmap_and_dontneed_while_polling);
}

TEST(Unprivileged, PinsStayWithinTheLockLimit) {
  as_ordinary_user(16 * kPage, [] {
    auto domain = make_domain();
    const Mapping memory(256);
    const auto result = domain->register_region({.domain = 1,
                                                 .address = memory.address(),
                                                 .length_bytes = memory.size(),
                                                 .iova = 0,
                                                 .access = kLocalWrite | kRemoteWrite | kOnDemand});
    REQUIRE(result.error == 0);
    auto session = domain->attach_engine();
    const std::vector<uint8_t> bytes(memory.size(), 1);
    REQUIRE(write_all(*session, {result.key, 1, kRemoteWrite}, 0, bytes) == Outcome::done);
    REQUIRE(domain->counters().pinned_bytes <= 16 * kPage);
    REQUIRE(domain->counters().pin_fallbacks >= 1);
    const Mapping large(256);
    const auto classic = domain->register_region({.domain = 1,
                                                  .address = large.address(),
                                                  .length_bytes = large.size(),
                                                  .iova = 0,
                                                  .access = kLocalWrite | kRemoteWrite});
    REQUIRE(classic.error == 0);
    session->enter();
    REQUIRE(session->write({classic.key, 1, kRemoteWrite}, 0, bytes) == Outcome::done);
    session->leave();
    return 0;
  });
}

}  // namespace
}  // namespace faultline::odp::test::unprivileged_test
