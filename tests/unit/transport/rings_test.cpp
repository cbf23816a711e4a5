// SPDX-License-Identifier: BSD-3-Clause
// The two rings between application threads and an engine: work requests in, completions out. The two-thread
// tests serve ThreadSanitizer as much as their own checks.
#include <array>
#include <atomic>
#include <chrono>
#include <semaphore>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "stack/transport/qp/completion_queue.hpp"
#include "stack/transport/qp/work_queue.hpp"

namespace faultline::transport {
namespace {

TEST(WorkRing, HoldsExactlyItsCapacity) {
  for (const uint32_t entries : {1U, 2U, 3U, 7U, 8U}) {
    SendRing ring(entries, 4, 64);
    for (uint32_t i = 0; i < entries; ++i) {
      SendWqe* wqe = ring.prepare();
      ASSERT_NE(wqe, nullptr) << entries;
      wqe->wr_id = i;
      ring.advance();
    }
    EXPECT_EQ(ring.prepare(), nullptr) << entries;
    EXPECT_EQ(ring.tail(), 0U) << "seen before it was published";
    ring.publish();
    EXPECT_EQ(ring.tail(), entries);
    ring.retire_to(1);
    EXPECT_NE(ring.prepare(), nullptr);
  }
}

TEST(WorkRing, SlotsDoNotOverlap) {
  SendRing ring(4, 3, 100, true);
  std::vector<std::pair<uint8_t*, uint8_t*>> parts;
  for (uint32_t i = 0; i < 4; ++i) {
    SendWqe* wqe = ring.prepare();
    auto* start = reinterpret_cast<uint8_t*>(wqe);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(start) % 64, 0U);
    // Operands and elements share no bytes. Without operands the first element is in the same cache line.
    wqe->opcode = SendOpcode::atomic_cmp_and_swp;
    EXPECT_GE(reinterpret_cast<uint8_t*>(ring.sges_of(wqe)), start + sizeof(SendWqe));
    EXPECT_GE(reinterpret_cast<uint8_t*>(&ring.av_of(wqe)),
              reinterpret_cast<uint8_t*>(ring.sges_of(wqe) + 3));
    wqe->opcode = SendOpcode::rdma_write;
    EXPECT_EQ(reinterpret_cast<uint8_t*>(ring.sges_of(wqe) + 1), start + 64);
    EXPECT_GE(reinterpret_cast<uint8_t*>(ring.sges_of(wqe)),
              reinterpret_cast<uint8_t*>(&wqe->bind_access + 1));
    auto* av = reinterpret_cast<uint8_t*>(&ring.av_of(wqe));
    EXPECT_GE(av, reinterpret_cast<uint8_t*>(ring.sges_of(wqe) + 3));
    EXPECT_GE(av, ring.inline_of(wqe) + 100);
    parts.emplace_back(start, av + sizeof(AddressVector));
    ring.advance();
  }
  for (size_t i = 1; i < parts.size(); ++i) EXPECT_LE(parts[i - 1].second, parts[i].first);
}

TEST(WorkRing, ClearedItStartsAnew) {
  ReceiveRing ring(2, 1, 0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_NE(ring.prepare(), nullptr);
    ring.advance();
  }
  ring.publish();
  ring.clear();
  EXPECT_EQ(ring.head(), ring.tail());
  EXPECT_NE(ring.prepare(), nullptr);
}

TEST(WorkRing, CarriesEveryRequestBetweenTwoThreads) {
  constexpr uint64_t kCount = 4'000;
  SendRing ring(13, 2, 0);
  std::thread producer([&ring] {
    for (uint64_t i = 0; i < kCount;) {
      SendWqe* wqe = ring.prepare();
      if (wqe == nullptr) {
        std::this_thread::yield();
        continue;
      }
      wqe->wr_id = i;
      wqe->length_bytes = static_cast<uint32_t>(i * 7);
      ring.sges_of(wqe)[1].va = ~i;
      ring.advance();
      ring.publish();
      ++i;
    }
  });
  uint64_t wrong = 0;
  uint32_t head = 0;
  for (uint64_t next = 0; next < kCount;) {
    const uint32_t tail = ring.tail();
    if (head == tail) std::this_thread::yield();
    for (; head != tail; ++head, ++next) {
      SendWqe* wqe = ring.header_at(head);
      wrong += wqe->wr_id != next || wqe->length_bytes != static_cast<uint32_t>(next * 7) ||
                       ring.sges_of(wqe)[1].va != ~next
                   ? 1
                   : 0;
      ring.retire_to(head + 1);
    }
  }
  producer.join();
  EXPECT_EQ(wrong, 0U);
}

TEST(CompletionQueue, GivesBackInOrderAndSaysWhenItRanOver) {
  CompletionQueue queue(3);
  Completion completion;
  uint32_t taken = 0;
  while (queue.push(completion)) {
    completion.wr_id = ++taken;
    ASSERT_LE(taken, 64U);
  }
  EXPECT_GE(taken, 3U);
  EXPECT_TRUE(queue.overrun());
  std::array<Completion, 2> out;
  uint64_t expected = 0;
  while (const uint32_t got = queue.poll(out))
    for (uint32_t i = 0; i < got; ++i) EXPECT_EQ(out[i].wr_id, expected++);
  EXPECT_EQ(expected, taken);
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(queue.push(completion));
}

TEST(CompletionQueue, CarriesEveryCompletionBetweenTwoThreads) {
  constexpr uint64_t kCount = 4'000;
  CompletionQueue queue(16);
  std::thread engine([&queue] {
    Completion completion;
    for (uint64_t i = 0; i < kCount;) {
      completion.wr_id = i;
      completion.byte_length = static_cast<uint32_t>(i ^ 0x5a5a);
      if (queue.push(completion))
        ++i;
      else
        std::this_thread::yield();
    }
  });
  std::array<Completion, 5> out;
  uint64_t wrong = 0;
  for (uint64_t next = 0; next < kCount;) {
    const uint32_t got = queue.poll(out);
    if (got == 0) std::this_thread::yield();
    for (uint32_t i = 0; i < got; ++i, ++next)
      wrong += out[i].wr_id != next || out[i].byte_length != static_cast<uint32_t>(next ^ 0x5a5a) ? 1 : 0;
  }
  engine.join();
  EXPECT_EQ(wrong, 0U);
}

TEST(CompletionQueue, WhatWasThereBeforeItWasArmedMakesNoEvent) {
  CompletionQueue queue(16);
  Completion completion;
  CompletionQueue::Pushed pushed;
  const auto push = [&](bool solicited) {
    completion.solicited = solicited ? 1 : 0;
    ASSERT_TRUE(queue.push(completion));
    queue.note(completion, pushed);
  };
  push(true);
  push(false);
  EXPECT_FALSE(queue.seems_armed());
  queue.arm(false);
  EXPECT_TRUE(queue.seems_armed());
  EXPECT_EQ(queue.notice(pushed, 0), Notice::none);
  push(false);
  EXPECT_EQ(queue.notice(pushed, 0), Notice::now);
  EXPECT_EQ(queue.notice(pushed, 0), Notice::none) << "once";
  // The same for solicited events only.
  queue.arm(true);
  EXPECT_EQ(queue.notice(pushed, 0), Notice::none);
  push(false);
  EXPECT_EQ(queue.notice(pushed, 0), Notice::none);
  push(true);
  push(false);
  EXPECT_EQ(queue.notice(pushed, 0), Notice::now);
  // Simultaneous completions are counted individually; completions before the arm do not count.
  queue.moderate(3, 1'000);
  queue.arm(false);
  push(false);
  push(false);
  EXPECT_EQ(queue.notice(pushed, 5), Notice::later);
  EXPECT_EQ(queue.notice_deadline(), 1'005U);
  pushed = {};
  push(false);
  EXPECT_EQ(queue.notice(pushed, 6), Notice::now);
}

TEST(CompletionQueue, ASolicitedCompletionThatMovesIsNotMissed) {
  CompletionQueue queue(16);
  CompletionQueue::Pushed pushed;
  const auto push = [&](uint64_t wr_id, bool solicited) {
    const Completion completion{.wr_id = wr_id, .solicited = solicited ? uint8_t{1} : uint8_t{0}};
    ASSERT_TRUE(queue.push(completion));
    queue.note(completion, pushed);
  };
  queue.arm(false);
  push(0, false);
  push(1, false);
  ASSERT_EQ(queue.notice(pushed, 0), Notice::now) << "the program knows of both";
  push(2, true);
  std::vector<Completion> waiting = queue.waiting();
  ASSERT_EQ(waiting.size(), 3U);
  std::swap(waiting[1], waiting[2]);
  queue.reorder_waiting(waiting);
  Completion first;
  ASSERT_EQ(queue.poll({&first, 1}), 1U);
  EXPECT_EQ(first.wr_id, 0U);
  queue.arm(true);
  EXPECT_TRUE(queue.take_armed_by_waiting(true));
}

/// The engine checks with a plain load after each push, and with a full check after several. Every completion
/// must produce an event, or the program sleeps for ever.
TEST(CompletionQueue, NoCompletionIsMissedWhoeverArmsMeanwhile) {
  constexpr uint32_t kCount = 15'000;
  CompletionQueue queue(64);
  std::atomic<uint32_t> taken{0};
  std::atomic<uint32_t> asked{0};  // pushes covered by the engine's notice() calls
  std::counting_semaphore<> events(0);
  std::thread engine([&] {
    for (uint32_t pushed_in_all = 0; pushed_in_all < kCount;) {
      // Only these pushes can raise an event, so no later push can hide a missing one.
      while (taken.load(std::memory_order_relaxed) != pushed_in_all) std::this_thread::yield();
      CompletionQueue::Pushed pushed;
      const auto ask = [&] {
        if (queue.notice(pushed, 0) == Notice::now) events.release();
        pushed = {};
      };
      for (uint32_t burst = pushed_in_all % 3; burst < 3; ++burst) {
        EXPECT_TRUE(queue.push({}));
        ++pushed_in_all;
        queue.note({}, pushed);
        if (queue.seems_armed()) ask();
      }
      ask();
      asked.store(pushed_in_all, std::memory_order_release);
    }
  });
  const auto told = [&] {
    while (!events.try_acquire_for(std::chrono::milliseconds(20)))
      if (asked.load(std::memory_order_acquire) > taken.load(std::memory_order_relaxed))
        return events.try_acquire();
    return true;
  };
  std::array<Completion, 5> out;
  uint32_t missed = 0;
  while (taken.load(std::memory_order_relaxed) < kCount) {
    queue.arm(false);
    if (queue.take_armed_by_waiting(false)) events.release();
    while (const uint32_t got = queue.poll(out)) taken.fetch_add(got, std::memory_order_relaxed);
    if (taken.load(std::memory_order_relaxed) < kCount && !told()) ++missed;
  }
  engine.join();
  EXPECT_EQ(missed, 0U);
}

}  // namespace
}  // namespace faultline::transport
