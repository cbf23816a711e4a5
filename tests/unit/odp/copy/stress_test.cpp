// SPDX-License-Identifier: BSD-3-Clause
// One thread takes memory away by pattern, while an engine copies into it at full speed through the fault
// queue. FAULTLINE_STRESS_SECONDS sets a longer duration.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::stress_test {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kWindows = 16;
constexpr size_t kWindowPages = 8;
constexpr uint8_t kFromPeer = 0xee;

std::chrono::milliseconds stress_time() {
  const char* seconds = std::getenv("FAULTLINE_STRESS_SECONDS");
  return std::chrono::milliseconds(seconds != nullptr ? 1000L * std::strtol(seconds, nullptr, 10) : 3000L);
}

/// A memory range with one region; the key changes when the range is mapped and registered again.
struct Window {
  uint8_t* data = nullptr;
  std::atomic<Key> key{0};
};

struct Stress {
  explicit Stress(uint32_t access, uint64_t budget_bytes)
      : access_flags(access),
        domain(make_domain({.pin_budget_bytes = budget_bytes})),
        memory(kWindows * kWindowPages) {
    for (size_t i = 0; i < kWindows; ++i) {
      windows[i].data = memory.data() + i * kWindowPages * kPage;
      register_window(windows[i]);
    }
  }

  void register_window(Window& window) const {
    const auto address = reinterpret_cast<uint64_t>(window.data);
    const auto result = domain->register_region({.domain = 1,
                                                 .address = address,
                                                 .length_bytes = kWindowPages * kPage,
                                                 .iova = address,
                                                 .access = access_flags});
    ASSERT_EQ(result.error, 0);
    window.key = result.key;
  }

  /// The engine: random writes. A miss is requested and postponed, like a stalled QP, while other writes
  /// continue.
  void copy_until_stopped() {
    auto session = domain->attach_engine();
    std::mt19937 random(1);
    const std::vector<uint8_t> bytes(kPage, kFromPeer);
    std::array<Resolution, 64> resolutions;
    std::array<bool, kWindows> stalled{};
    while (!stop) {
      session->enter();
      const size_t count = session->take_resolutions(resolutions);
      for (size_t i = 0; i < count; ++i) {
        stalled[resolutions[i].waiter.bits] = false;
        ++(resolutions[i].outcome == Outcome::done ? resolved : refused);
      }
      for (int turn = 0; turn < 16; ++turn) {
        const size_t i = random() % kWindows;
        if (stalled[i]) continue;
        const Target target{windows[i].key, 1, kRemoteWrite};
        const size_t length = 1 + random() % kPage;
        const uint64_t va =
            reinterpret_cast<uint64_t>(windows[i].data) + random() % (kWindowPages * kPage - length);
        switch (session->write(target, va, std::span(bytes).first(length))) {
          case Outcome::done:
            ++copied;
            break;
          case Outcome::miss:
            if (const FaultRequest fault{target, va, length, {i}}; !session->serve_fault(fault))
              stalled[i] = session->request_fault(fault);
            break;
          case Outcome::violation:
            ++violations;
            break;
        }
      }
      if (session->should_yield()) std::this_thread::yield();
    }
    session->leave();
  }

  /// The program: takes memory away and checks the bytes afterwards.
  void disturb(std::mt19937& random) {
    Window& window = windows[random() % kWindows];
    const size_t bytes = kWindowPages * kPage;
    switch (random() % 4) {
      case 0:
        madvise(window.data + (random() % kWindowPages) * kPage, kPage, MADV_DONTNEED);
        return;
      case 1:
        madvise(window.data, bytes, MADV_FREE);
        return;
      case 2:
        munmap(window.data, bytes);
        ASSERT_EQ(mmap(window.data, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                  window.data);
        break;
      default:
        ASSERT_EQ(
            mmap(window.data, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            window.data);
        break;
    }
    // The mapping is new and its region is deregistered: only this thread may write here.
    const auto mine = static_cast<uint8_t>(random() % 0xe0);
    std::memset(window.data, mine, bytes);
    for (int look = 0; look < 3; ++look) {
      for (size_t i = 0; i < bytes; ++i)
        stale_writes += static_cast<const volatile uint8_t*>(window.data)[i] != mine;
      std::this_thread::yield();
    }
    ++remapped;
    ASSERT_EQ(domain->deregister_region(window.key), 0);
    register_window(window);
  }

  void run() {
    std::thread engine([this] { copy_until_stopped(); });
    const auto end = std::chrono::steady_clock::now() + stress_time();
    std::mt19937 random(2);
    while (std::chrono::steady_clock::now() < end && !testing::Test::HasFatalFailure()) disturb(random);
    stop = true;
    engine.join();
    EXPECT_EQ(stale_writes, 0U);
    EXPECT_GT(copied.load(), 0U);
    EXPECT_GT(remapped, 0U);
    const Counters counters = domain->counters();
    std::printf(
        "%lu copies, %lu resolved, %lu refused, %lu violations, %lu remaps, %lu caught, %lu contentions, %lu "
        "evictions\n",
        copied.load(), resolved.load(), refused.load(), violations.load(), remapped,
        counters.copy_faults_caught, counters.invalidations_faults_contentions, counters.pin_evictions);
  }

  const uint32_t access_flags;
  std::unique_ptr<MemoryDomain> domain;
  Mapping memory;
  std::array<Window, kWindows> windows;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> copied{0};
  std::atomic<uint64_t> resolved{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> violations{0};
  uint64_t remapped = 0;
  uint64_t stale_writes = 0;
};

TEST(OdpStress, NoStaleWriteOnDemand) {
  Stress stress(kLocalWrite | kRemoteWrite | kOnDemand, uint64_t{1} << 30);
  stress.run();
  EXPECT_GT(stress.resolved.load(), 0U);
}

TEST(OdpStress, NoStaleWriteOnDemandWithATinyBudget) {
  Stress stress(kLocalWrite | kRemoteWrite | kOnDemand, 32 * kPage);
  stress.run();
  EXPECT_LE(stress.domain->counters().pinned_bytes, 32 * kPage);
}

TEST(OdpStress, NoStaleWriteClassic) {
  Stress stress(kLocalWrite | kRemoteWrite, uint64_t{1} << 30);
  stress.run();
}

}  // namespace
}  // namespace faultline::odp::test::stress_test
