// SPDX-License-Identifier: BSD-3-Clause
// The memory layer in a restricted process: system calls refused from the start or later, no descriptors, a
// small RLIMIT_MEMLOCK. Each test forks a child that drops its privileges.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "odp/guards.hpp"
#include "odp/pins/pin_table.hpp"
#include "tests/environments/seccomp_filter.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::refusals_test {
namespace {

constexpr size_t kPage = 4096;
constexpr int kSkipped = 77;

/// Runs `body` in a child. `body` returns 0, the line of a failed expectation, or minus the line that found
/// that this machine lacks what the test needs.
template <typename Body>
void in_child(Body body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(faultline::test::hang_seconds());  // SIGALRM ends a child that hangs
    const int line = body();
    if (line != 0) std::fprintf(stderr, "%s:%d: failed as uid %u\n", __FILE__, std::abs(line), geteuid());
    std::fflush(nullptr);
    _exit(line > 0 ? 1 : line < 0 ? kSkipped : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped)
    GTEST_SKIP() << "this machine lacks what the test needs, see above";
  EXPECT_EQ(status, 0) << (WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "");
}

#define REQUIRE(condition) \
  if (!(condition)) return __LINE__
#define NEED(condition) \
  if (!(condition)) return -__LINE__

/// Changes to an ordinary user that no other process has: the kernel counts locked memory per user.
int become_ordinary_user(rlim_t memlock_bytes) {
  const rlimit limit{memlock_bytes, memlock_bytes};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return errno;
  if (geteuid() != 0) return 0;
  const auto user = static_cast<uid_t>(100'000 + getpid());
  return setgid(user) != 0 || setuid(user) != 0 ? errno : 0;
}

RegionRequest request_of(const Mapping& memory, uint32_t access) {
  return {.domain = 1,
          .address = memory.address(),
          .length_bytes = memory.size(),
          .iova = memory.address(),
          .access = access};
}

/// Captures stdout and stderr of this process from now on.
class Output {
 public:
  Output() {
    std::fflush(nullptr);
    dup2(out_, STDOUT_FILENO);
    dup2(err_, STDERR_FILENO);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    dup2(saved_, STDERR_FILENO);
    std::fprintf(stderr, "%s", text_of(err_).c_str());
  }

  [[nodiscard]] bool stdout_is_empty() const { return text_of(out_).empty(); }
  [[nodiscard]] size_t count_of(std::string_view part) const {
    const std::string text = text_of(err_);
    size_t count = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
    return count;
  }

 private:
  [[nodiscard]] static std::string text_of(int file) {
    std::string text(static_cast<size_t>(lseek(file, 0, SEEK_END)), '\0');
    text.resize(static_cast<size_t>(std::max(ssize_t{0}, pread(file, text.data(), text.size(), 0))));
    return text;
  }

  const int saved_ = dup(STDERR_FILENO);
  const int out_ = memfd_create("stdout", 0);
  const int err_ = memfd_create("stderr", 0);
};

const Guard& guard_of(const GuardList& list, std::string_view name) {
  for (size_t i = 0; i < list.count; ++i)
    if (list.guards[i].name == name) return list.guards[i];
  throw std::out_of_range(std::string(name));
}
GuardState state_of(const GuardList& list, std::string_view name) {
  return guard_of(list, name).state;
}
int error_of(const GuardList& list, std::string_view name) {
  return guard_of(list, name).error;
}
std::string text_of(const GuardList& list, std::string_view name) {
  return guard_of(list, name).text.data();
}

/// Resident pages of a region, and their pins.
struct Pinned {
  explicit Pinned(uint64_t pages) : memory(pages), pins(pages * kPage, counters) {
    std::memset(memory.data(), 1, memory.size());
    region.on_demand = true;
    region.address = memory.address();
    region.length_bytes = memory.size();
    region.first_page = memory.address() >> kPageShift;
    const size_t granules = (pages + kGranulePages - 1) / kGranulePages;
    ready = pins.allocate() && region.pages.allocate(pages) && region.granule_pins.allocate(granules) &&
            region.granule_used.allocate(granules);
  }
  ~Pinned() { pins.unpin_all(region); }

  Mapping memory;
  CounterCells counters;
  PinTable pins;
  Region region;
  bool ready = false;
};

TEST(Refusals, WithoutGetrandomARegistrationFailsWithItsErrno) {
  in_child([] {
    auto domain = make_guarded_domain();
    const Mapping memory(4);
    NEED(faultline::test::refuse_calls(std::array{long{SYS_getrandom}}, EPERM) == 0);
    REQUIRE(domain->register_region(request_of(memory, kLocalWrite | kOnDemand)).error == EPERM);
    REQUIRE(domain->register_region(request_of(memory, kLocalWrite)).error == EPERM);
    REQUIRE(domain->allocate_window(1, WindowType::type1).error == EPERM);
    return 0;
  });
}

TEST(Refusals, PinsComeBackWhenThereAreDescriptorsAgain) {
  in_child([] {
    rlimit before{};
    NEED(getrlimit(RLIMIT_NOFILE, &before) == 0);
    Pinned pinned(64);
    REQUIRE(pinned.ready);
    const rlimit none{3, before.rlim_max};
    NEED(setrlimit(RLIMIT_NOFILE, &none) == 0);
    pinned.pins.pin_pages(pinned.region, {0, 1}, 1, 1);
    NEED(pinned.counters.pin_fallbacks.get() == 1);
    NEED(setrlimit(RLIMIT_NOFILE, &before) == 0);
    // Perhaps not at once, but soon.
    for (size_t page = 1; page < 64; ++page) pinned.pins.pin_pages(pinned.region, {page, 1}, 1, 1);
    REQUIRE(pinned.counters.pinned_bytes.get() > 0);
    return 0;
  });
}

TEST(Refusals, ASlotThatCannotBeClearedIsNeitherFreeNorUnpinned) {
  in_child([] {
    Pinned pinned(64);
    REQUIRE(pinned.ready);
    pinned.pins.pin_pages(pinned.region, {0, 16}, 1, 1);
    NEED(pinned.counters.pinned_bytes.get() == 16 * kPage);
    NEED(faultline::test::refuse_calls(std::array{long{SYS_io_uring_register}}, EPERM) == 0);
    pinned.pins.unpin_pages(pinned.region, {0, 64});
    REQUIRE(pinned.region.pin_records == 0);
    REQUIRE(pinned.counters.pinned_bytes.get() == 16 * kPage);
    REQUIRE(pinned.counters.stuck_pin_bytes.get() == 16 * kPage);
    REQUIRE(pinned.pins.take_release_error() == EPERM);
    REQUIRE(pinned.pins.take_release_error() == 0);
    return 0;
  });
}

/// RLIMIT_MEMLOCK covers all memory that a user locks.
TEST(Refusals, TheProgramsOwnLockedMemoryHasItsShare) {
  in_child([] {
    constexpr size_t kPages = 256;
    NEED(become_ordinary_user(kPages * kPage) == 0);
    const Mapping buffer(16);
    io_uring own{};
    const iovec range{buffer.data(), buffer.size()};
    NEED(io_uring_queue_init(1, &own, 0) == 0);
    auto domain = make_guarded_domain();
    const Mapping memory(2 * kPages);
    const RegionResult result =
        domain->register_region(request_of(memory, kLocalWrite | kRemoteWrite | kOnDemand));
    REQUIRE(result.error == 0);
    auto session = domain->attach_engine();
    const std::vector<uint8_t> bytes(memory.size(), 1);
    REQUIRE(write_all(*session, {result.key, 1, kRemoteWrite}, memory.address(), bytes) == Outcome::done);
    NEED(domain->counters().pinned_bytes > kPages * kPage / 2);
    REQUIRE(io_uring_register_buffers(&own, &range, 1) == 0);
    return 0;
  });
}

#ifndef ODP_HOOKED
#error "say whether this program has the library's hooks"
#endif
constexpr bool kHooked = ODP_HOOKED;

TEST(Guards, WhatIsRefusedIsMissing) {
  in_child([] {
    const std::array refused{long{SYS_userfaultfd}, long{SYS_io_uring_setup}, long{SYS_membarrier}};
    NEED(faultline::test::refuse_calls(refused, EPERM) == 0);
    const GuardList list = query_guards();
    REQUIRE(state_of(list, "memory hooks") == (kHooked ? GuardState::works : GuardState::missing));
    REQUIRE(state_of(list, "signal hooks") == (kHooked ? GuardState::works : GuardState::missing));
    REQUIRE(state_of(list, "userfaultfd") == GuardState::missing);
    REQUIRE(error_of(list, "userfaultfd") == EPERM);
    REQUIRE(state_of(list, "pins") == GuardState::missing);
    REQUIRE(error_of(list, "pins") == EPERM);
    REQUIRE(state_of(list, "process map") == GuardState::works);
    REQUIRE(state_of(list, "restartable copies") == GuardState::missing);
    return 0;
  });
}

TEST(Guards, SayHowFewDescriptorsAreLeft) {
  in_child([] {
    rlimit limit{};
    NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int highest = 0;
    for (int next = dup(0); next >= 0 && highest < 100; next = dup(0)) highest = next;
    limit.rlim_cur = static_cast<rlim_t>(highest) + 1;
    NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    REQUIRE(state_of(query_guards(), "descriptors") == GuardState::missing);
    REQUIRE(error_of(query_guards(), "process map") == EMFILE);
    REQUIRE(error_of(query_guards(), "userfaultfd") == EMFILE);
    close(highest);
    REQUIRE(state_of(query_guards(), "descriptors") == GuardState::limited);
    return 0;
  });
}

TEST(Guards, KnowTheBudgetOfAnOrdinaryUser) {
  in_child([] {
    NEED(become_ordinary_user(8 << 20) == 0);
    REQUIRE(state_of(query_guards(), "memlock") == GuardState::limited);
    REQUIRE(text_of(query_guards(), "memlock").find("6291456") != std::string::npos);
    auto domain = make_guarded_domain({.pin_budget_bytes = 1 << 20});
    REQUIRE(text_of(query_guards(), "memlock").find("1048576") != std::string::npos);
    return 0;
  });
}

/// Without hooks and without events nothing would report an unmapping.
TEST(Guards, OnDemandMemoryNeedsOneThatReportsUnmappings) {
  for (const bool allowed : {false, true}) {
    in_child([allowed] {
      const Output output;
      NEED(faultline::test::refuse_calls(std::array{long{SYS_userfaultfd}}, EPERM) == 0);
      auto domain = make_guarded_domain({.allow_unguarded = allowed});
      const Mapping memory(4);
      const int expected = kHooked || allowed ? 0 : ENOTSUP;
      REQUIRE(domain->register_region(request_of(memory, kLocalWrite)).error == 0);
      REQUIRE(domain->register_region(request_of(memory, kLocalWrite | kOnDemand)).error == expected);
      const RegionRequest implicit{.domain = 1,
                                   .address = 0,
                                   .length_bytes = ~uint64_t{0},
                                   .iova = 0,
                                   .access = kLocalWrite | kOnDemand};
      REQUIRE(domain->register_region(implicit).error == expected);
      REQUIRE(output.count_of("fails (ENOTSUP)") == (expected == 0 ? 0U : 1U));
      REQUIRE(output.count_of("guard \"userfaultfd\" is missing") == 1);
      REQUIRE(output.stdout_is_empty());
      return 0;
    });
  }
}

/// A container lacks several at once.
TEST(Guards, SeveralThatAreMissingAreOneLine) {
  in_child([] {
    const Output output;
    NEED(faultline::test::refuse_calls(std::array{long{SYS_userfaultfd}, long{SYS_io_uring_setup}}, EPERM) ==
         0);
    auto domain = make_guarded_domain({});
    const Mapping memory(4);
    REQUIRE(domain->register_region(request_of(memory, kLocalWrite)).error == 0);
    REQUIRE(output.count_of("guard \"userfaultfd\" is missing (Operation not permitted)") == 1);
    REQUIRE(output.count_of("guard \"pins\" is missing (Operation not permitted)") == 1);
    REQUIRE(output.count_of("\n") == 1);
    REQUIRE(output.stdout_is_empty());
    return 0;
  });
}

/// io_uring_register(2): IORING_REGISTER_BUFFERS2 knows empty tables since Linux 5.19.
TEST(Guards, PinsWorkWithoutATableThatIsMadeEmpty) {
  in_child([] {
    const Output output;
    NEED(faultline::test::refuse_argument(SYS_io_uring_register, 1, IORING_REGISTER_BUFFERS2, EINVAL) == 0);
    auto domain = make_guarded_domain({.pin_budget_bytes = 4 * kPage});
    const Mapping memory(4);
    REQUIRE(domain->register_region(request_of(memory, kLocalWrite)).error == 0);
    REQUIRE(domain->counters().pinned_bytes == 4 * kPage);
    REQUIRE(state_of(query_guards(), "pins") == GuardState::works);
    REQUIRE(output.count_of("pinned") == 0);
    return 0;
  });
}

/// Before Linux 5.13 a table cannot be changed, so nothing can be pinned: the guard tries what the pins need.
TEST(Guards, PinsThatCannotBeChangedAreMissing) {
  in_child([] {
    const Output output;
    NEED(faultline::test::refuse_argument(SYS_io_uring_register, 1, IORING_REGISTER_BUFFERS_UPDATE, EINVAL) ==
         0);
    auto domain = make_guarded_domain({});
    REQUIRE(state_of(query_guards(), "pins") == GuardState::missing);
    REQUIRE(text_of(query_guards(), "pins").find("Linux 5.13") != std::string::npos);
    REQUIRE(output.count_of("guard \"pins\" is missing") == 1);
    return 0;
  });
}

struct UnpinnedCase {
  const char* name;
  bool refuse;
  uint64_t budget_bytes;
  bool with_io_uring;
  rlim_t memlock_bytes;
  const char* reason;
};

/// Registered unpinned with a log line, or refused: never silently unpinned.
TEST(Guards, AClassicRegionThatCannotBePinnedIsLoggedOrRefused) {
  constexpr rlim_t kLimit = 1 << 20;
  constexpr std::array kCases{
      UnpinnedCase{"lock limit", false, 1 << 30, true, kLimit, "RLIMIT_MEMLOCK is 1048576"},
      UnpinnedCase{"lock limit, refused", true, 1 << 30, true, kLimit, "RLIMIT_MEMLOCK is 1048576"},
      UnpinnedCase{"budget", false, 1 << 18, true, kLimit, "pin_budget_mib"},
      UnpinnedCase{"budget, refused", true, 1 << 18, true, kLimit, "pin_budget_mib"},
      UnpinnedCase{"no io_uring", false, 1 << 30, false, 4 * kLimit, "guard \"pins\" is missing"},
      UnpinnedCase{"no io_uring, refused", true, 1 << 30, false, 4 * kLimit, "seccomp"},
  };
  for (const UnpinnedCase& one : kCases) {
    SCOPED_TRACE(one.name);
    in_child([&one] {
      const Output output;
      const bool has_limit_alone = geteuid() == 0;
      NEED(become_ordinary_user(one.memlock_bytes) == 0);
      if (!one.with_io_uring)
        NEED(faultline::test::refuse_calls(std::array{long{SYS_io_uring_setup}}, EPERM) == 0);
      auto domain =
          make_guarded_domain({.pin_budget_bytes = one.budget_bytes, .refuse_unpinned_classic = one.refuse});
      const Mapping memory(256);
      for (int i = 0; i < 2; ++i)
        REQUIRE(domain->register_region(request_of(memory, kLocalWrite)).error == (one.refuse ? ENOMEM : 0));
      // Other tests of the same user may use up the limit, even for io_uring's rings.
      if (one.with_io_uring && !has_limit_alone)
        NEED(state_of(query_guards(), "pins") != GuardState::missing);
      REQUIRE(domain->counters().pinned_bytes == 0);
      REQUIRE(domain->counters().pin_fallbacks == 2);
      // The guard's line covers every classic region.
      REQUIRE(output.count_of("a classic memory region") == (one.with_io_uring || one.refuse ? 1U : 0U));
      REQUIRE(output.count_of(one.reason) >= 1);
      REQUIRE(output.stdout_is_empty());
      if (one.with_io_uring) REQUIRE(state_of(query_guards(), "pins") == GuardState::limited);
      return 0;
    });
  }
}

/// On-demand memory can be made resident again: its pins make room.
TEST(Guards, AClassicRegionTakesThePinsOfOnDemandMemory) {
  in_child([] {
    auto domain = make_guarded_domain({.pin_budget_bytes = 64 * kPage, .refuse_unpinned_classic = true});
    const Mapping memory(64);
    const RegionResult result =
        domain->register_region(request_of(memory, kLocalWrite | kRemoteWrite | kOnDemand));
    REQUIRE(result.error == 0);
    auto session = domain->attach_engine();
    const std::vector<uint8_t> bytes(memory.size(), 1);
    REQUIRE(write_all(*session, {result.key, 1, kRemoteWrite}, memory.address(), bytes) == Outcome::done);
    NEED(eventually([&] { return domain->counters().pinned_bytes == 64 * kPage; }));
    const Mapping classic(32);
    REQUIRE(domain->register_region(request_of(classic, kLocalWrite)).error == 0);
    REQUIRE(domain->counters().pin_evictions != 0);
    REQUIRE(domain->counters().pinned_bytes <= 64 * kPage);
    const Mapping too_large(64);
    REQUIRE(domain->register_region(request_of(too_large, kLocalWrite)).error == ENOMEM);
    REQUIRE(write_all(*session, {result.key, 1, kRemoteWrite}, memory.address(), bytes) == Outcome::done);
    return 0;
  });
}

}  // namespace
}  // namespace faultline::odp::test::refusals_test
