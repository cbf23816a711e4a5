// SPDX-License-Identifier: BSD-3-Clause
#include "odp/quiescence.hpp"

#include <algorithm>
#include <ctime>

namespace faultline::odp {

Quiescence::Slot* Quiescence::attach() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    bool expected = false;
    if (!slots_[i].used.compare_exchange_strong(expected, true)) continue;
    size_t high = high_water_.load();
    while (high < i + 1 && !high_water_.compare_exchange_weak(high, i + 1)) {
    }
    return &slots_[i];
  }
  return nullptr;
}

void Quiescence::detach(Slot& slot) {
  slot.seen.store(0, std::memory_order_release);
  slot.used.store(false, std::memory_order_release);
}

void Quiescence::wait_for(uint64_t token) const {
  const size_t high = high_water_.load(std::memory_order_seq_cst);
  for (size_t i = 0; i < high; ++i) {
    Backoff backoff;
    for (;;) {
      const uint64_t seen = slots_[i].seen.load(std::memory_order_seq_cst);
      if (seen == 0 || (seen & ~kGates) >= token) break;
      backoff.pause();
    }
  }
}

std::atomic<uint32_t>& ReaderStripes::own() {
  static std::atomic<size_t> next{0};
  thread_local const size_t mine = next.fetch_add(1, std::memory_order_relaxed) % kStripes;
  return stripes_[mine].count;
}

void ReaderStripes::wait() const {
  // A stripe seen at zero once has let go of all that was held before; later guards cannot find what is
  // withdrawn.
  for (const Stripe& stripe : stripes_) {
    Backoff backoff;
    while (stripe.count.load(std::memory_order_seq_cst) != 0) backoff.pause();
  }
}

void Backoff::pause() {
  constexpr unsigned kSpins = 200;
  constexpr long kFirstNapNs = 5'000;
  constexpr unsigned kDoublings = 5;
  if (rounds_ < kSpins) {
    ++rounds_;
    __builtin_ia32_pause();
    return;
  }
  // Longer each time: under SCHED_FIFO every wake-up takes the CPU from the very thread that is waited for.
  const timespec nap{0, kFirstNapNs << std::min(rounds_ - kSpins, kDoublings)};
  ++rounds_;
  clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, nullptr);
}

}  // namespace faultline::odp
