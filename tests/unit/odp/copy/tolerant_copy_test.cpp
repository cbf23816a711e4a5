// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/tolerant_copy.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "odp/copy/fault_handler.hpp"
#include "odp/copy/fault_signals.hpp"
#include "tests/unit/odp/copy/routines.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::tolerant_copy_test {
namespace {

constexpr size_t kPage = 4096;

class TolerantCopy : public testing::TestWithParam<CopyRoutine> {
 protected:
  void SetUp() override {
    if (!copy_routine_supported(GetParam())) GTEST_SKIP() << "this CPU lacks the routine";
    install_fault_handler();
    edge_ = static_cast<uint8_t*>(mmap(test::low_address(3 * kPage), 3 * kPage, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(edge_, MAP_FAILED);
    munmap(edge_ + 2 * kPage, kPage);
    std::iota(pattern_.begin(), pattern_.end(), uint8_t{1});
  }
  void TearDown() override {
    if (edge_ != nullptr) munmap(edge_, 2 * kPage);
  }

  uint8_t* edge_ = nullptr;  ///< two pages, then a hole
  std::vector<uint8_t> pattern_ = std::vector<uint8_t>(3 * kPage);
};

TEST_P(TolerantCopy, CopiesEveryLengthExactly) {
  std::vector<uint8_t> out(2 * kPage + 64);
  std::vector<size_t> lengths(700);
  std::iota(lengths.begin(), lengths.end(), size_t{0});
  for (const size_t length : {size_t{1024}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{8191}})
    lengths.push_back(length);
  for (const size_t length : lengths) {
    const size_t to = length % 33;
    const size_t from = length % 29;
    std::fill(out.begin(), out.end(), uint8_t{0});
    ASSERT_EQ(tolerant_copy_with(GetParam(), out.data() + to, pattern_.data() + from, length), length);
    ASSERT_EQ(std::memcmp(out.data() + to, pattern_.data() + from, length), 0) << length;
    for (size_t i = 0; i < to; ++i) ASSERT_EQ(out[i], 0) << length;
    for (size_t i = to + length; i < out.size(); ++i) ASSERT_EQ(out[i], 0) << length;
  }
}

TEST_P(TolerantCopy, StopsShortAtAHoleInTheDestination) {
  for (size_t length = 1; length < 700; ++length) {
    for (const size_t inside : {size_t{0}, size_t{1}, length / 2, length - 1}) {
      if (inside >= length) continue;
      uint8_t* to = edge_ + 2 * kPage - inside;
      std::memset(edge_, 0, 2 * kPage);
      const size_t copied = tolerant_copy_with(GetParam(), to, pattern_.data(), length);
      ASSERT_LE(copied, inside) << length;
      ASSERT_EQ(std::memcmp(to, pattern_.data(), copied), 0) << length;
    }
  }
}

TEST_P(TolerantCopy, StopsShortAtAHoleInTheSource) {
  std::vector<uint8_t> out(kPage);
  std::memset(edge_, 0x77, 2 * kPage);
  for (size_t length = 1; length < 700; ++length) {
    const size_t inside = length / 3;
    const size_t copied = tolerant_copy_with(GetParam(), out.data(), edge_ + 2 * kPage - inside, length);
    ASSERT_LE(copied, inside) << length;
  }
}

TEST_P(TolerantCopy, SurvivesATruncatedFile) {
  const int file = memfd_create("truncated", 0);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, 2 * kPage), 0);
  auto* memory = static_cast<uint8_t*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(ftruncate(file, kPage), 0);
  EXPECT_LT(tolerant_copy_with(GetParam(), memory + kPage - 100, pattern_.data(), 200), 200U);
  EXPECT_EQ(tolerant_copy_with(GetParam(), memory, pattern_.data(), kPage), kPage);
  munmap(memory, 2 * kPage);
  close(file);
}

TEST_P(TolerantCopy, WorksInEveryThread) {
  std::vector<std::thread> threads;
  std::atomic<int> caught{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      unblock_fault_signals();
      for (int round = 0; round < 200; ++round) {
        if (tolerant_copy_with(GetParam(), edge_ + 2 * kPage, pattern_.data(), 64) < 64) ++caught;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(caught.load(), 800);
}

INSTANTIATE_TEST_SUITE_P(Routines, TolerantCopy, testing::ValuesIn(test::kCopyRoutines),
                         [](const auto& routine) { return test::name_of(routine.param); });

// Faults of the program itself, each in a separate process.

volatile int* null_pointer() {
  static volatile int* volatile null = nullptr;
  return null;
}

void exit_42(int) {
  _exit(42);
}
void exit_43_with_address(int, siginfo_t* info, void*) {
  _exit(info->si_addr == nullptr ? 43 : 1);
}

TEST(FaultHandlerDeathTest, ChainsToThePlainHandlerThatWasThere) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, exit_42);
        install_fault_handler();
        *null_pointer() = 1;
      },
      testing::ExitedWithCode(42), "");
}

TEST(FaultHandlerDeathTest, ChainsToTheSiginfoHandlerThatWasThere) {
  EXPECT_EXIT(
      {
        struct sigaction action {};
        action.sa_sigaction = exit_43_with_address;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, nullptr);
        install_fault_handler();
        *null_pointer() = 1;
      },
      testing::ExitedWithCode(43), "");
}

TEST(FaultHandlerDeathTest, DefaultActionEndsTheProcess) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_DFL);
        install_fault_handler();
        *null_pointer() = 1;
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST(FaultHandlerDeathTest, SentSignalTakesTheDefaultActionToo) {
  EXPECT_EXIT(
      {
        signal(SIGBUS, SIG_DFL);
        install_fault_handler();
        kill(getpid(), SIGBUS);
        pause();
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(FaultHandlerDeathTest, IgnoredSentSignalStaysIgnored) {
  EXPECT_EXIT(
      {
        signal(SIGBUS, SIG_IGN);
        install_fault_handler();
        raise(SIGBUS);
        _exit(44);
      },
      testing::ExitedWithCode(44), "");
}

struct sigaction replaced;
int times_called = 0;
void chain_back(int signal_number, siginfo_t* info, void* context) {
  if (++times_called > 1) _exit(1);
  replaced.sa_sigaction(signal_number, info, context);
}

TEST(FaultHandlerDeathTest, HandlerThatChainsBackToUsDoesNotLoop) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer keeps a table of actions of its own, which a bare system call passes by";
#endif
  EXPECT_EXIT(
      {
        signal(SIGSEGV, exit_42);
        install_fault_handler();
        struct sigaction action {};
        action.sa_sigaction = chain_back;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, &replaced);
        install_fault_handler();
        // Our handler is first again: a fault in a copy is still caught.
        uint8_t byte = 0;
        if (tolerant_copy(reinterpret_cast<void*>(64), &byte, 1) != 0) _exit(2);
        *null_pointer() = 1;
      },
      testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace faultline::odp::tolerant_copy_test
