// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/quiescence.hpp"

#include <algorithm>
#include <bit>
#include <ctime>

#include <sys/syscall.h>
#include <unistd.h>

#include "stack/base/pause.hpp"

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

void Quiescence::wait_for_copies(uint64_t token) const {
  void* const self = thread_pointer();
  const size_t high = high_water_.load(std::memory_order_seq_cst);
  for (size_t i = 0; i < high; ++i) {
    const Slot& slot = slots_[i];
    Backoff backoff;
    for (;;) {
      const uint64_t seen = slot.seen.load(std::memory_order_seq_cst);
      if (seen == 0 || (seen & ~kGates) >= token) break;
      // The engine's turn is below this call on the stack; the signal that interrupted it restarts its
      // copies.
      if (slot.driver.load(std::memory_order_relaxed) == self) break;
      if (slot.suspended.load(std::memory_order_acquire) != 0) break;
      // A turn may take long: its thread was preempted, or waits for the calling thread.
      if (!backoff.spins() && restart_copies()) return;
      backoff.pause();
    }
  }
}

void Quiescence::suspend_own(int change) {
  void* const self = thread_pointer();
  const size_t high = high_water_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < high; ++i) {
    Slot& slot = slots_[i];
    if (slot.driver.load(std::memory_order_relaxed) == self && slot.seen.load(std::memory_order_relaxed) != 0)
      slot.suspended.fetch_add(change, std::memory_order_acq_rel);
  }
}

std::atomic<uint32_t>& ReaderStripes::own() {
  // Selects the stripe by the thread pointer. Thread-local data may allocate at its first use, and signal
  // handlers call this function. Thread pointers are some KiB apart.
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  constexpr unsigned kStripeBits = std::countr_zero(kStripes);
  return stripes_[reinterpret_cast<uint64_t>(thread_pointer()) * kGolden >> (64 - kStripeBits)].count;
}

void ReaderStripes::wait() const {
  // Once a stripe has been seen at zero, all guards held before are released. Later guards cannot find what
  // is withdrawn.
  for (const Stripe& stripe : stripes_) {
    Backoff backoff;
    while (stripe.count.load(std::memory_order_seq_cst) != 0) backoff.pause();
  }
}

void Backoff::pause() {
  constexpr long kFirstNapNs = 5'000;
  constexpr unsigned kDoublings = 5;
  if (rounds_ < kSpins) {
    ++rounds_;
    pause_cpu();
    return;
  }
  // Sleeps longer each time: under SCHED_FIFO every wake-up preempts the thread that is waited for.
  const timespec nap{0, kFirstNapNs << std::min(rounds_ - kSpins, kDoublings)};
  ++rounds_;
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &nap, nullptr);
}

}  // namespace faultline::odp
