// SPDX-License-Identifier: BSD-3-Clause
// Guarded copies: complete at every length, refused with a revoked ticket, abandoned by a signal or restart
// before the last store, and complete after it.
#include "odp/copy/restartable_copy.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "odp/copy/fault_handler.hpp"
#include "odp/copy/fault_signals.hpp"
#include "odp/copy/tolerant_atomic.hpp"
#include "odp/copy/tolerant_copy.hpp"
#include "odp/copy/tolerant_copy_crc.hpp"
#include "tests/unit/odp/copy/routines.hpp"
#include "tests/unit/odp/hooks/interruption.hpp"

#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#endif

extern "C" __attribute__((visibility("hidden"))) const char faultline_odp_revoked[];

namespace faultline::odp::test::restartable_copy_test {
namespace {

class GuardedCopy : public testing::TestWithParam<CopyRoutine> {
 protected:
  void SetUp() override {
    if (!copy_routine_supported(GetParam())) GTEST_SKIP() << "this CPU lacks the routine";
    install_fault_handler();
    prepare_restartable_copies();
    std::iota(from_.begin(), from_.end(), uint8_t{1});
    prepare_ticket(ticket_);
  }

  CopyTicket ticket_;
  std::vector<uint8_t> from_ = std::vector<uint8_t>(10'000);
  std::vector<uint8_t> to_ = std::vector<uint8_t>(10'000);
};

TEST_P(GuardedCopy, CopiesEveryLengthExactly) {
  std::vector<size_t> lengths(700);
  std::iota(lengths.begin(), lengths.end(), size_t{0});
  for (const size_t length : {size_t{1024}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{9000}})
    lengths.push_back(length);
  for (const size_t length : lengths) {
    const size_t to = length % 33;
    const size_t from = length % 29;
    std::fill(to_.begin(), to_.end(), uint8_t{0});
    size_t copied = kRevoked;
    // The scheduler may interrupt a copy.
    while (copied == kRevoked)
      copied = guarded_copy_with(GetParam(), to_.data() + to, from_.data() + from, length, ticket_);
    ASSERT_EQ(copied, length);
    ASSERT_EQ(std::memcmp(to_.data() + to, from_.data() + from, length), 0) << length;
    for (size_t i = 0; i < to; ++i) ASSERT_EQ(to_[i], 0) << length;
    for (size_t i = to + length; i < to_.size(); ++i) ASSERT_EQ(to_[i], 0) << length;
  }
}

TEST_P(GuardedCopy, AnOldTicketStoresNothing) {
  revoke_tickets();
  for (const size_t length : {1U, 2U, 3U, 4U, 7U, 8U, 15U, 16U, 31U, 32U, 63U, 64U, 128U, 129U, 4096U}) {
    ASSERT_EQ(guarded_copy_with(GetParam(), to_.data(), from_.data(), length, ticket_), kRevoked) << length;
    for (size_t i = 0; i < length; ++i) ASSERT_EQ(to_[i], 0) << length;
  }
}

TEST_P(GuardedCopy, EndsAtAFaultWithNothingCertain) {
  constexpr size_t kPage = 4096;
  auto* const pages = static_cast<uint8_t*>(
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(mprotect(pages + kPage, kPage, PROT_NONE), 0);
  for (size_t length = 1; length < 700; ++length) {
    size_t copied = kRevoked;
    while (copied == kRevoked)
      copied = guarded_copy_with(GetParam(), pages + kPage - length / 2, from_.data(), length, ticket_);
    ASSERT_EQ(copied, 0U) << length;
  }
  munmap(pages, 2 * kPage);
}

/// Raises a signal before each instruction. Before the last store it abandons the copy; after that store the
/// copy is complete. A handler of the program that sees and replaces the last byte keeps its value.
TEST_P(GuardedCopy, ASignalBeforeTheLastStoreAbandonsIt) {
  if (!has_restartable_copies()) GTEST_SKIP() << "no restartable sequences here (rseq, membarrier)";
  if (!Interruption::kIsPossible) GTEST_SKIP() << "not under a sanitizer";
  for (const size_t length : {1U, 2U, 3U, 4U, 5U, 8U, 9U, 16U, 17U, 32U, 33U, 64U, 65U, 128U, 129U, 300U}) {
    size_t copied = 0;
    const auto copy = [&] {
      copied = guarded_copy_with(GetParam(), to_.data(), from_.data(), length, ticket_);
    };
    // A trap would abandon the sequence, so the instruction addresses are collected with a ticket that names
    // no sequence.
    CopyTicket plain{.seen = ticket_.seen};
    plain.sequence = &plain.unused;
    const std::vector<uintptr_t> places = Interruption::places(
        [&] { copied = guarded_copy_with(GetParam(), to_.data(), from_.data(), length, plain); });
    ASSERT_EQ(copied, length);
    size_t abandoned = 0;
    size_t completed = 0;
    for (const uintptr_t place : places) {
      std::fill(to_.begin(), to_.end(), uint8_t{0});
      uint8_t seen_last = 0;
      const auto replace_if_seen = [&] {
        seen_last = to_[length - 1];
        if (seen_last != 0) to_[length - 1] = 0xee;
      };
      if (!Interruption::at(place, copy, replace_if_seen)) continue;
      if (copied == kRevoked) {
        ++abandoned;
        ASSERT_EQ(seen_last, 0) << "bytes that were seen would be stored again: length " << length;
      } else {
        ++completed;
        ASSERT_EQ(copied, length);
        ASSERT_EQ(to_[length - 1], seen_last != 0 ? 0xee : from_[length - 1]) << length;
      }
    }
    EXPECT_GT(abandoned, 2U) << length;
    EXPECT_GT(completed, 2U) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Routines, GuardedCopy, testing::ValuesIn(test::kCopyRoutines),
                         [](const auto& routine) { return test::name_of(routine.param); });

class Guarded : public testing::Test {
 protected:
  void SetUp() override {
    install_fault_handler();
    prepare_restartable_copies();
    std::iota(from_.begin(), from_.end(), uint8_t{1});
    prepare_ticket(ticket_);
  }

  CopyTicket ticket_;
  std::vector<uint8_t> from_ = std::vector<uint8_t>(9'216);
  std::vector<uint8_t> to_ = std::vector<uint8_t>(9'216);
};

TEST_F(Guarded, CopyWithItsSumIsTheUnguardedOnes) {
  for (const size_t length : {1U, 64U, 255U, 256U, 257U, 512U, 1000U, 1024U, 4096U, 8999U, 9000U}) {
    uint32_t wanted = 0x1234;
    ASSERT_EQ(tolerant_copy_crc(to_.data(), from_.data(), length, wanted), length);
    std::fill(to_.begin(), to_.end(), uint8_t{0});
    uint32_t crc = 0x1234;
    size_t copied = kRevoked;
    while (copied == kRevoked) copied = guarded_copy_crc(to_.data(), from_.data(), length, crc, ticket_);
    ASSERT_EQ(copied, length);
    EXPECT_EQ(crc, wanted) << length;
    EXPECT_EQ(std::memcmp(to_.data(), from_.data(), length), 0) << length;
  }
}

TEST_F(Guarded, CopyBesideASumIsTheUnguardedOnes) {
  std::vector<uint8_t> summed(9'000);
  std::iota(summed.begin(), summed.end(), uint8_t{77});
  for (const size_t length : {1U, 255U, 256U, 512U, 768U, 1000U, 1024U, 4096U, 8999U}) {
    for (const size_t sum_length : {256U, 512U, 1000U, 4096U}) {
      CrcBeside wanted{.bytes = std::span(summed).first(sum_length), .crc = 5};
      ASSERT_EQ(tolerant_copy_beside(to_.data(), from_.data(), length, wanted), length);
      std::fill(to_.begin(), to_.end(), uint8_t{0});
      CrcBeside sum{.bytes = std::span(summed).first(sum_length), .crc = 5};
      size_t copied = kRevoked;
      while (copied == kRevoked) {
        sum = {.bytes = std::span(summed).first(sum_length), .crc = 5};
        copied = guarded_copy_beside(to_.data(), from_.data(), length, sum, ticket_);
      }
      ASSERT_EQ(copied, length);
      EXPECT_EQ(sum.done, wanted.done);
      EXPECT_EQ(sum.crc, wanted.crc) << length << " " << sum_length;
      EXPECT_EQ(std::memcmp(to_.data(), from_.data(), length), 0) << length;
    }
  }
}

TEST_F(Guarded, AnOldTicketStopsEveryForm) {
  revoke_tickets();
  uint32_t crc = 7;
  CrcBeside sum{.bytes = std::span(from_).first(4096), .crc = 5};
  uint64_t original = 0;
  EXPECT_EQ(guarded_copy_crc(to_.data(), from_.data(), 4096, crc, ticket_), kRevoked);
  EXPECT_EQ(guarded_copy_crc(to_.data(), from_.data(), 64, crc, ticket_), kRevoked);
  EXPECT_EQ(crc, 7U);
  EXPECT_EQ(guarded_copy_beside(to_.data(), from_.data(), 4096, sum, ticket_), kRevoked);
  for (const AtomicOp op : {AtomicOp::compare_swap, AtomicOp::fetch_add, AtomicOp::store})
    EXPECT_EQ(guarded_atomic(to_.data(), {.op = op, .compare = 0, .operand = 9}, original, ticket_),
              GuardedAtomic::revoked);
  for (const uint8_t byte : to_) ASSERT_EQ(byte, 0);
}

TEST_F(Guarded, AnAtomicIsDoneOnceHoweverItIsInterrupted) {
  if (!has_restartable_copies()) GTEST_SKIP() << "no restartable sequences here (rseq, membarrier)";
  if (!Interruption::kIsPossible) GTEST_SKIP() << "not under a sanitizer";
  alignas(8) uint64_t word = 0;
  for (const AtomicOp op : {AtomicOp::compare_swap, AtomicOp::fetch_add, AtomicOp::store}) {
    const AtomicRequest request{.op = op, .compare = 40, .operand = 2};
    uint64_t original = 0;
    GuardedAtomic result{};
    CopyTicket plain{.seen = ticket_.seen};
    plain.sequence = &plain.unused;
    const std::vector<uintptr_t> places =
        Interruption::places([&] { result = guarded_atomic(&word, request, original, plain); });
    size_t abandoned = 0;
    size_t completed = 0;
    for (const uintptr_t place : places) {
      word = 40;
      original = 0;
      const auto operate = [&] { result = guarded_atomic(&word, request, original, ticket_); };
      if (!Interruption::at(place, operate, {})) continue;
      const uint64_t after = op == AtomicOp::fetch_add ? 42 : 2;
      ASSERT_EQ(word, result == GuardedAtomic::done ? after : 40U);
      ASSERT_EQ(original, result == GuardedAtomic::done ? 40U : 0U);
      abandoned += result == GuardedAtomic::revoked;
      completed += result == GuardedAtomic::done;
    }
    EXPECT_GT(abandoned, 1U);
    EXPECT_GT(completed, 1U);
  }
}

/// Otherwise the kernel ends the process instead of a copy (rseq(2)).
TEST_F(Guarded, TheAbortAddressFollowsTheCLibrarysSignature) {
#if __has_include(<sys/rseq.h>)
  constexpr uint32_t kSignature = RSEQ_SIG;
  const auto* const before =
      reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(faultline_odp_revoked) - sizeof kSignature);
  EXPECT_EQ(std::memcmp(before, &kSignature, sizeof kSignature), 0);
#else
  GTEST_SKIP() << "no sys/rseq.h here (glibc 2.35)";
#endif
}

/// After restart_copies() no copy with an older ticket continues. No caller waits for the copying thread,
/// which may be stopped for any time.
TEST_F(Guarded, ARestartNeedsNoThreadToGoOn) {
  if (!has_restartable_copies()) GTEST_SKIP() << "no restartable sequences here (rseq, membarrier)";
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> copies{0};
  std::atomic<uint64_t> revoked{0};
  // The state is one word: the copier stores the value that it has checked, and the owner increments the
  // state.
  std::atomic<uint64_t> state{1};
  alignas(64) static std::array<uint64_t, 512> place{};
  std::thread copier([&] {
    unblock_fault_signals();
    std::array<uint64_t, 512> value{};
    CopyTicket ticket;
    while (!stop) {
      prepare_ticket(ticket);
      value.fill(state.load());
      if (guarded_copy(place.data(), value.data(), sizeof value, ticket) == kRevoked)
        ++revoked;
      else
        ++copies;
    }
  });
  while (copies < 1000) std::this_thread::yield();
  for (int round = 0; round < 3'000; ++round) {
    const uint64_t old = state.load();
    state.store(old + 1);
    revoke_tickets();
    ASSERT_TRUE(restart_copies());
    // Every store from here on is of the new state.
    place.fill(0);
    state.fetch_add(0, std::memory_order_seq_cst);
    for (int look = 0; look < 20; ++look)
      for (volatile uint64_t& word : place) ASSERT_NE(word, old);
  }
  stop = true;
  copier.join();
  EXPECT_GT(copies.load(), 1000U);
}

}  // namespace
}  // namespace faultline::odp::test::restartable_copy_test
