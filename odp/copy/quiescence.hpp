// SPDX-License-Identifier: BSD-3-Clause
// The gate and the token. By the gate the monitor stops all engines of a domain. By the token a thread waits
// until what an engine may have seen at a moment is no longer in use. Works like rte_rcu_qsbr, with the gate
// in the same word as the token, so that an engine's turn begins with one load.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "odp/copy/restartable_copy.hpp"

namespace faultline::odp {

class Quiescence {
 public:
  static constexpr size_t kMaxSessions = 256;

  /// What one engine has seen. 0: offline.
  struct alignas(64) Slot {
    std::atomic<uint64_t> seen{0};
    /// Thread pointer of the thread that drives the engine; valid while the engine is online.
    std::atomic<void*> driver{nullptr};
    std::atomic<int> suspended{0};  ///< calls in progress on the driver's thread that interrupt its turn
    std::atomic<bool> used{false};
  };

  /// Returns nullptr if all slots are taken.
  [[nodiscard]] Slot* attach();
  void detach(Slot& slot);

  /// Starts an engine's turn; returns true if the gate is up for this turn.
  [[nodiscard]] bool enter(Slot& slot) {
    const uint64_t word = word_.load(std::memory_order_acquire);
    if (slot.seen.load(std::memory_order_relaxed) != 0) {
      // Already online: a thread that waits for this token raised the gate before the token.
      slot.seen.store(word, std::memory_order_release);
      return (word & kGates) != 0;
    }
    slot.driver.store(thread_pointer(), std::memory_order_relaxed);
    // When leaving the offline state, the store must be visible before the gate is read: Dekker against
    // raise_gate().
    slot.seen.exchange(word, std::memory_order_seq_cst);
    return (word_.load(std::memory_order_seq_cst) & kGates) != 0;
  }
  void leave(Slot& slot) { slot.seen.store(0, std::memory_order_release); }

  [[nodiscard]] bool gate_is_up() const { return (word_.load(std::memory_order_seq_cst) & kGates) != 0; }

  /// Raises the gate and returns the token to wait for. The monitor calls it, and a program's thread around
  /// its own call: the gate is up until each has lowered it.
  uint64_t raise_gate() {
    word_.fetch_add(kOneGate, std::memory_order_seq_cst);
    return advance();
  }
  void lower_gate() { word_.fetch_sub(kOneGate, std::memory_order_seq_cst); }

  /// Returns a new token. Sessions report it once they no longer use what they saw before.
  uint64_t advance() {
    return (word_.fetch_add(kTokenStep, std::memory_order_seq_cst) + kTokenStep) & ~kGates;
  }
  /// Returns when every session is offline or has reported `token`: nothing that was seen before is in use.
  /// Must not be called by a thread that may drive a session itself, or that a session's thread may wait
  /// for.
  void wait_for(uint64_t token) const;
  /// Returns when no session copies by checks made before `token` and before the last revoke_tickets().
  /// Waits for no thread if copies can be restarted. Otherwise it skips the calling thread's own session,
  /// and sessions whose thread is in a call of the program (suspend_own()). Async-signal-safe.
  void wait_for_copies(uint64_t token) const;

  /// Between +1 and -1, wait_for_copies() skips the sessions that the calling thread drives. Needed if a
  /// signal handler has interrupted a turn on this thread, since its call may wait for another
  /// wait_for_copies(). Used only if copies cannot be restarted. Async-signal-safe.
  void suspend_own(int change);

 private:
  /// Threads that hold the gate up: at most one count per thread, of which Linux has 2^22 at most (proc(5),
  /// pid_max).
  static constexpr uint64_t kOneGate = 1;
  static constexpr uint64_t kTokenStep = uint64_t{1} << 23;
  static constexpr uint64_t kGates = kTokenStep - 1;

  alignas(64) std::atomic<uint64_t> word_{kTokenStep};
  alignas(64) std::atomic<size_t> high_water_{0};
  std::array<Slot, kMaxSessions> slots_;
};

/// Readers that are not engines: program threads and the pager hold a region only inside a
/// ReaderStripes::Guard.
class ReaderStripes {
 public:
  class Guard {
   public:
    explicit Guard(ReaderStripes& stripes) : stripes_(stripes) { stripes_.enter(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { stripes_.leave(); }

   private:
    ReaderStripes& stripes_;
  };
  /// A Guard's two halves; call both on one thread.
  void enter() { own().fetch_add(1, std::memory_order_seq_cst); }
  void leave() { own().fetch_sub(1, std::memory_order_release); }

  /// Returns when each guard that was held at the call has been released.
  void wait() const;

 private:
  static constexpr size_t kStripes = 64;
  struct alignas(64) Stripe {
    std::atomic<uint32_t> count{0};
  };
  [[nodiscard]] std::atomic<uint32_t>& own();

  std::array<Stripe, kStripes> stripes_;
};

/// Exponential backoff: spins first, then sleeps, since the awaited thread may need this CPU. No
/// cancellation point (pthreads(7)): the program's own calls use it to wait.
class Backoff {
 public:
  void pause();
  /// False once pause() would sleep.
  [[nodiscard]] bool spins() const { return rounds_ < kSpins; }

 private:
  static constexpr unsigned kSpins = 200;
  unsigned rounds_ = 0;
};

}  // namespace faultline::odp
