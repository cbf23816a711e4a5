// SPDX-License-Identifier: BSD-3-Clause
// What calls of the program may stop, and what they may wait for (docs/invalidation.md). With the library's
// hooks. A separate program, because it forks.
#include "odp/invalidation/program_call.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "odp/copy/restartable_copy.hpp"
#include "odp/mappings/holes.hpp"
#include "stack/base/process/fork_generation.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/odp/engine_loop.hpp"
#include "tests/unit/odp/hooks/interruption.hpp"

namespace faultline::odp::test::program_call_test {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPages = 16;

/// Called in a prepare handler that was registered before the library's, and so runs after it.
std::atomic<void (*)()> in_prepare{nullptr};
[[gnu::constructor]] void register_prepare() {
  pthread_atfork(
      [] {
        if (void (*const act)() = in_prepare.load()) act();
      },
      nullptr, nullptr);
}

/// Memory with a userfaultfd of the program, whose events no thread reads before read_events(): a madvise or
/// munmap there stays in the kernel until then.
class StuckMemory {
 public:
  StuckMemory() {
    fd_ = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
    uffdio_api api{
        .api = UFFD_API, .features = UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP, .ioctls = 0};
    uffdio_register range{.range = {.start = memory_.address(), .len = memory_.size()},
                          .mode = UFFDIO_REGISTER_MODE_MISSING,
                          .ioctls = 0};
    // The memory is touched first: the test needs its events, not its faults.
    std::memset(memory_.data(), 0x55, memory_.size());
    works_ = fd_ >= 0 && ioctl(fd_, UFFDIO_API, &api) == 0 && ioctl(fd_, UFFDIO_REGISTER, &range) == 0;
  }
  StuckMemory(const StuckMemory&) = delete;
  StuckMemory& operator=(const StuckMemory&) = delete;
  ~StuckMemory() {
    if (fd_ >= 0) close(fd_);
  }

  [[nodiscard]] bool works() const { return works_; }
  [[nodiscard]] const Mapping& memory() const { return memory_; }
  /// Returns when a call is in the kernel and waits for its event to be read.
  void await_call() const {
    pollfd poller{.fd = fd_, .events = POLLIN, .revents = 0};
    while (poll(&poller, 1, 1000) < 1) {
    }
  }
  /// Unregisters the memory: the program receives no more faults or events.
  void give_up() const {
    uffdio_range range{.start = memory_.address(), .len = memory_.size()};
    ASSERT_EQ(ioctl(fd_, UFFDIO_UNREGISTER, &range), 0);
  }
  void read_event() const {
    uffd_msg event{};
    await_call();
    ASSERT_EQ(read(fd_, &event, sizeof event), static_cast<ssize_t>(sizeof event));
  }

 private:
  Mapping memory_{kPages};
  int fd_ = -1;
  bool works_ = false;
};

struct Setting {
  bool monitor;      ///< userfaultfd
  bool restartable;  ///< copies
};

class ProgramCalls : public testing::TestWithParam<Setting> {
 public:
  Outcome fill(const Target& target, uint64_t va, size_t bytes, uint8_t value) {
    const std::vector<uint8_t> data(bytes, value);
    return write_all(*session_, target, va, data);
  }

 protected:
  void SetUp() override {
    disable_restartable_copies(!GetParam().restartable);
    domain_ = make_domain({.monitor_invalidations = GetParam().monitor});
    session_ = domain_->attach_engine();
    alarm(faultline::test::hang_seconds());  // A call that never returns ends the test.
  }
  void TearDown() override {
    alarm(0);
    session_.reset();
    domain_.reset();
    disable_restartable_copies(false);
  }

  Target register_memory(const Mapping& memory, uint32_t more = kOnDemand) {
    const auto result = domain_->register_region({.domain = 1,
                                                  .address = memory.address(),
                                                  .length_bytes = memory.size(),
                                                  .iova = memory.address(),
                                                  .access = kLocalWrite | kRemoteWrite | kRemoteRead | more});
    EXPECT_EQ(result.error, 0);
    return {result.key, 1, kRemoteWrite};
  }

  std::unique_ptr<MemoryDomain> domain_;
  std::unique_ptr<EngineSession> session_;
};

TEST_P(ProgramCalls, StopNothingButTheirPagesWhileTheyAreInTheKernel) {
  const StuckMemory stuck;
  if (!stuck.works()) GTEST_SKIP() << "no userfaultfd";
  const Mapping other(kPages);
  const Target target = register_memory(stuck.memory());
  const Target beside = register_memory(other);
  ASSERT_EQ(fill(target, stuck.memory().address(), stuck.memory().size(), 0x11), Outcome::done);
  ASSERT_EQ(fill(beside, other.address(), other.size(), 0x11), Outcome::done);
  const uint64_t changed = stuck.memory().address() + 4 * kPage;

  std::atomic<bool> returned{false};
  std::thread program([&] {
    EXPECT_EQ(madvise(stuck.memory().data() + 4 * kPage, 2 * kPage, MADV_DONTNEED), 0);
    returned = true;
  });
  stuck.await_call();
  session_->enter();
  const std::array<uint8_t, 8> bytes{9};
  EXPECT_EQ(session_->write(beside, other.address(), bytes), Outcome::done) << "of another region";
  EXPECT_EQ(session_->write(target, changed - kPage, bytes), Outcome::done)
      << "a page that it does not change";
  EXPECT_EQ(session_->write(target, changed, bytes), Outcome::miss) << "a page that it changes";
  // The request for that page waits for the end of the call.
  EXPECT_FALSE(session_->serve_fault({target, changed, bytes.size(), {5}})) << "left to the threads";
  ASSERT_TRUE(session_->request_fault({target, changed, bytes.size(), {5}}));
  session_->leave();
  // Faults of other pages are served meanwhile.
  const Mapping fresh(kPages);
  const Target fresh_target = register_memory(fresh);
  EXPECT_EQ(fill(fresh_target, fresh.address(), fresh.size(), 0x22), Outcome::done);
  EXPECT_FALSE(returned);

  stuck.read_event();
  program.join();
  // The page would now have to be provided by the program's handler, which has ended.
  stuck.give_up();
  EXPECT_EQ(next_resolution(*session_).waiter.bits, 5U);
  session_->leave();
}

TEST_P(ProgramCalls, AnUnmapWaitsForNoHandlerThatWaitsForTransfers) {
  const StuckMemory stuck;
  if (!stuck.works()) GTEST_SKIP() << "no userfaultfd";
  const Mapping other(kPages);
  const Target beside = register_memory(other);
  const Target target = register_memory(stuck.memory());
  ASSERT_EQ(fill(target, stuck.memory().address(), kPage, 0x11), Outcome::done);
  std::thread program([&] { EXPECT_EQ(munmap(stuck.memory().data(), 2 * kPage), 0); });
  // The program's handler moves data before it reads the event.
  stuck.await_call();
  for (int round = 0; round < 100; ++round)
    ASSERT_EQ(fill(beside, other.address(), other.size(), static_cast<uint8_t>(round)), Outcome::done);
  EXPECT_EQ(madvise(other.data(), kPage, MADV_DONTNEED), 0) << "and makes calls of its own";
  stuck.read_event();
  program.join();
  EXPECT_EQ(fill(target, stuck.memory().address(), 1, 0x33), Outcome::violation);
}

std::atomic<int> prepare_outcome{-1};

TEST_P(ProgramCalls, AForkWaitsForNoHandlerThatWaitsForTransfers) {
  static ProgramCalls* self = nullptr;
  static const Mapping* memory = nullptr;
  static Target target;
  const Mapping other(kPages);
  self = this;
  memory = &other;
  target = register_memory(other);
  ASSERT_EQ(fill(target, other.address(), other.size(), 0x11), Outcome::done);
  prepare_outcome = -1;
  in_prepare = [] {
    // The transfers run on a worker thread, since the handler's thread may hold locks that they need.
    std::async(std::launch::async, [] {
      prepare_outcome = static_cast<int>(self->fill(target, memory->address(), memory->size(), 0x77));
    }).wait();
  };
  const pid_t child = fork();
  if (child == 0) _exit(0);
  in_prepare = nullptr;
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(prepare_outcome.load(), static_cast<int>(Outcome::done));
}

/// A signal handler on the engine's own thread runs at each instruction of a write. It unmaps the page and
/// maps another one there. The write must end and must not store into the new mapping.
TEST_P(ProgramCalls, AHandlerInsideACopyMayUnmapItsPage) {
  if (!GetParam().restartable) GTEST_SKIP() << "needs copies that can be restarted";
  if (!Interruption::kIsPossible) GTEST_SKIP() << "not under a sanitizer";
  const std::vector<uint8_t> data(200, 0xaa);
  const Mapping trial(1);
  const Target trial_target = register_memory(trial);
  ASSERT_EQ(fill(trial_target, trial.address(), kPage, 1), Outcome::done);
  disable_restartable_copies(true);  // each trap would abandon the sequence
  session_->enter();
  const std::vector<uintptr_t> places = Interruption::places(
      [&] { EXPECT_EQ(session_->write(trial_target, trial.address(), data), Outcome::done); });
  session_->leave();
  disable_restartable_copies(false);
  if (!has_restartable_copies()) GTEST_SKIP() << "no restartable sequences here (rseq, membarrier)";

  size_t interrupted = 0;
  size_t refused = 0;
  for (const uintptr_t place : places) {
    const Mapping memory(1);
    const Target target = register_memory(memory);
    ASSERT_EQ(fill(target, memory.address(), kPage, 1), Outcome::done);
    Outcome outcome{};
    session_->enter();
    const bool hit = Interruption::at(
        place, [&] { outcome = session_->write(target, memory.address() + 8, data); },
        [&] {
          munmap(memory.data(), kPage);
          mmap(memory.data(), kPage, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        });
    session_->leave();
    if (hit) {
      ++interrupted;
      refused += outcome != Outcome::done;
      for (size_t i = 0; i < kPage; ++i) ASSERT_EQ(memory.data()[i], 0) << "stored after the unmap";
    }
    ASSERT_EQ(domain_->deregister_region(target.key), 0);
  }
  EXPECT_GT(interrupted, 10U);
  EXPECT_GT(refused, 10U);
  session_->enter();
  session_->leave();
}

TEST_P(ProgramCalls, AHandlerInsideATurnMayForkAndAdvise) {
  const std::vector<uint8_t> data(200, 0xaa);
  const Mapping memory(kPages);
  const Target target = register_memory(memory);
  ASSERT_EQ(fill(target, memory.address(), memory.size(), 1), Outcome::done);
  static const Mapping* handled = nullptr;
  static std::atomic<int> calls{0};
  handled = &memory;
  calls = 0;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {
    madvise(handled->data() + kPage, kPage, MADV_DONTNEED);
    munmap(handled->data() + 2 * kPage, kPage);
    if (const pid_t child = fork(); child == 0) {
      _exit(0);
    } else {
      int status = 0;
      waitpid(child, &status, 0);
    }
    ++calls;
  };
  sigaction(SIGUSR1, &action, &before);
  session_->enter();
  ASSERT_EQ(raise(SIGUSR1), 0);  // in the middle of a turn
  EXPECT_EQ(session_->write(target, memory.address() + kPage, data), Outcome::miss);
  EXPECT_NE(session_->write(target, memory.address() + 2 * kPage, data), Outcome::done);
  session_->leave();
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(calls.load(), 1);
  EXPECT_EQ(fill(target, memory.address() + kPage, data.size(), 3), Outcome::done);
  EXPECT_EQ(fill(target, memory.address() + 2 * kPage, 1, 3), Outcome::violation);
}

/// mmap(2): after a failure, part of the old mapping may be unmapped.
TEST_P(ProgramCalls, AFailedCallThatHasUnmappedKillsTheRegion) {
  for (const uint32_t access : {uint32_t{kOnDemand}, uint32_t{0}}) {
    constexpr size_t kHugeBytes = size_t{2} << 20;
    const Mapping place(2 * kHugeBytes / kPage);
    auto* const huge = reinterpret_cast<uint8_t*>((place.address() + kHugeBytes - 1) & ~(kHugeBytes - 1));
    const auto result = domain_->register_region({.domain = 1,
                                                  .address = reinterpret_cast<uint64_t>(huge),
                                                  .length_bytes = 8 * kPage,
                                                  .iova = reinterpret_cast<uint64_t>(huge),
                                                  .access = kLocalWrite | kRemoteWrite | access});
    ASSERT_EQ(result.error, 0);
    const Target target{result.key, 1, kRemoteWrite};
    ASSERT_EQ(fill(target, reinterpret_cast<uint64_t>(huge), 8 * kPage, 0x11), Outcome::done);
    void* const mapped = mmap(huge, kHugeBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB, -1, 0);
    if (mapped != MAP_FAILED) {
      munmap(mapped, kHugeBytes);
      GTEST_SKIP() << "this machine has huge pages";
    }
    if (!has_hole({reinterpret_cast<uint64_t>(huge), reinterpret_cast<uint64_t>(huge) + kPage})) {
      // The kernel has left the mapping unchanged, and so does the library.
      EXPECT_EQ(fill(target, reinterpret_cast<uint64_t>(huge), 8 * kPage, 0x22), Outcome::done);
      continue;
    }
    auto* const next = static_cast<uint8_t*>(mmap(huge, 8 * kPage, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    ASSERT_EQ(next, huge);
    EXPECT_EQ(fill(target, reinterpret_cast<uint64_t>(huge), 64, 0x33), Outcome::violation);
    EXPECT_EQ(next[0], 0);
  }
}

TEST_P(ProgramCalls, AFailedCallThatHasChangedNothingLeavesTheRegion) {
  for (const uint32_t access : {uint32_t{kOnDemand}, uint32_t{0}}) {
    const Mapping memory(kPages);
    const Target target = register_memory(memory, access);
    ASSERT_EQ(fill(target, memory.address(), memory.size(), 0x11), Outcome::done);
    EXPECT_EQ(syscall(SYS_munmap, memory.data() + 1, kPage), -1);
    EXPECT_EQ(munmap(memory.data() + 1, kPage), -1) << "not the start of a page";
    EXPECT_EQ(mmap(memory.data(), 4 * kPage, PROT_READ, MAP_FIXED | MAP_SHARED, -1, 0), MAP_FAILED);
    EXPECT_EQ(fill(target, memory.address(), memory.size(), 0x22), Outcome::done);
    EXPECT_EQ(memory.data()[0], 0x22);
  }
}

/// POSIX.1-2017 2.9.5.2 lists the cancellation points. None of these functions is one, and none may become
/// one.
TEST_P(ProgramCalls, AreNoCancellationPoints) {
  if (GetParam().restartable) GTEST_SKIP() << "only a wait would be one";
  const Mapping memory(kPages);
  const Target target = register_memory(memory);
  ASSERT_EQ(fill(target, memory.address(), memory.size(), 1), Outcome::done);
  std::atomic<bool> online{false};
  std::atomic<int> calls{0};
  std::atomic<bool> over{false};
  std::thread engine([&] {
    while (!over) {
      session_->enter();  // a long turn: a call that waits for its end sleeps
      online = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    session_->leave();
  });
  while (!online) std::this_thread::yield();
  std::thread program([&] {
    pthread_cancel(pthread_self());
    madvise(memory.data(), kPage, MADV_DONTNEED);
    ++calls;
    mprotect(memory.data() + kPage, kPage, PROT_READ);
    ++calls;
    munmap(memory.data() + 2 * kPage, kPage);
    ++calls;
    if (const pid_t child = fork(); child == 0) {
      _exit(0);
    } else {
      ++calls;
      int state = 0;
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
      waitpid(child, nullptr, 0);
    }
  });
  program.join();
  over = true;
  engine.join();
  EXPECT_EQ(calls.load(), 4);
}

/// A child created without the C library's fork() has the parent's marks and memory sessions, but not its
/// engines.
TEST_P(ProgramCalls, AChildOfABareCloneWaitsForNobody) {
  const Mapping memory(kPages);
  const Target target = register_memory(memory);
  ASSERT_EQ(fill(target, memory.address(), memory.size(), 1), Outcome::done);
  std::atomic<int> state{0};
  std::thread engine([&] {
    session_->enter();
    state = 1;
    while (state != 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    session_->leave();
  });
  while (state != 1) std::this_thread::yield();
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child == 0) {
    const bool right = munmap(memory.data(), kPage) == 0 && fork_generation() != 0 &&
                       madvise(memory.data() + kPage, kPage, MADV_DONTNEED) == 0;
    syscall(SYS_exit_group, right ? 0 : 1);
  }
  int status = -1;
  const bool ended = eventually([&] { return waitpid(child, &status, WNOHANG) == child; });
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  state = 2;
  engine.join();
  EXPECT_TRUE(ended);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(fill(target, memory.address(), memory.size(), 2), Outcome::done) << "the parent's is as it was";
}

/// A piece of an implicit region that is first requested while a call changes it has no marks yet.
TEST_P(ProgramCalls, APieceThatIsMadeDuringACallWaitsForItsEnd) {
  const Mapping memory(kPages);
  std::memset(memory.data(), 0x55, memory.size());
  const auto result = domain_->register_region({.domain = 1,
                                                .address = 0,
                                                .length_bytes = ~uint64_t{0},
                                                .iova = 0,
                                                .access = kLocalWrite | kRemoteWrite | kOnDemand});
  ASSERT_EQ(result.error, 0);
  const Target target{result.key, 1, kRemoteWrite};
  const std::array<uint8_t, 8> bytes{9};
  {
    const ProgramCall advise(memory.address(), memory.address() + memory.size(), PageEvent::drop);
    session_->enter();
    ASSERT_EQ(session_->write(target, memory.address(), bytes), Outcome::miss);
    EXPECT_FALSE(session_->serve_fault({target, memory.address(), bytes.size(), {6}}))
        << "left to the threads";
    ASSERT_TRUE(session_->request_fault({target, memory.address(), bytes.size(), {6}}));
    session_->leave();
    std::array<Resolution, 1> resolution;
    for (int i = 0; i < 200; ++i) {
      session_->enter();
      ASSERT_EQ(session_->take_resolutions(resolution), 0U);
      ASSERT_EQ(session_->write(target, memory.address(), bytes), Outcome::miss);
      session_->leave();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  EXPECT_EQ(next_resolution(*session_).outcome, Outcome::done);
  session_->leave();
  EXPECT_EQ(fill(target, memory.address(), memory.size(), 3), Outcome::done);
}

/// Two concurrent calls, of which one fails or keeps the mapping: the pages of the other call stay marked.
TEST_P(ProgramCalls, OneThatEndsLeavesTheOthersPages) {
  const Mapping memory(kPages);
  const Target target = register_memory(memory);
  ASSERT_EQ(fill(target, memory.address(), memory.size(), 1), Outcome::done);
  const uint64_t start = memory.address();
  const std::array<uint8_t, 8> bytes{9};
  const auto try_page = [&](size_t page) {
    session_->enter();
    const Outcome outcome = session_->write(target, start + page * kPage, bytes);
    session_->leave();
    return outcome;
  };
  {
    auto unmap = std::make_unique<ProgramCall>(start + 2 * kPage, start + 6 * kPage, PageEvent::kill);
    auto advise = std::make_unique<ProgramCall>(start + 4 * kPage, start + 8 * kPage, PageEvent::drop);
    advise.reset();
    EXPECT_EQ(fill(target, start + 6 * kPage, 1, 1), Outcome::done);
    EXPECT_EQ(try_page(4), Outcome::miss) << "the unmap's still";
    session_->enter();
    EXPECT_FALSE(session_->serve_fault({target, start + 4 * kPage, 8, {6}})) << "left to the threads";
    ASSERT_TRUE(session_->request_fault({target, start + 4 * kPage, 8, {6}}));
    std::array<Resolution, 1> resolution;
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(session_->take_resolutions(resolution), 0U);
    session_->leave();
    unmap->fail();
  }
  EXPECT_EQ(next_resolution(*session_).outcome, Outcome::done);
  session_->leave();
  EXPECT_EQ(fill(target, start, memory.size(), 2), Outcome::done) << "nothing was unmapped";
  { const ProgramCall unmap(start, start + kPage, PageEvent::kill); }
  EXPECT_EQ(fill(target, start, 1, 2), Outcome::violation) << "and this one was";
}

INSTANTIATE_TEST_SUITE_P(Ways, ProgramCalls,
                         testing::Values(Setting{true, true}, Setting{true, false}, Setting{false, true},
                                         Setting{false, false}),
                         [](const auto& way) {
                           return std::string(way.param.monitor ? "events" : "no_events") +
                                  (way.param.restartable ? "_restartable" : "_waiting");
                         });

}  // namespace
}  // namespace faultline::odp::test::program_call_test
