// SPDX-License-Identifier: BSD-3-Clause
// The gate and the token: how the monitor stops all engines of a domain, and how anyone waits until what an
// engine may have seen at a moment is no longer in use. As rte_rcu_qsbr does it, with the gate in the same
// word as the token, so that an engine's turn begins with one load.
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
    /// The thread whose turn it is, by its thread pointer; of an engine that is online.
    std::atomic<void*> driver{nullptr};
    std::atomic<int> suspended{0};  ///< calls under way on the driver's thread, below its turn
    std::atomic<bool> used{false};
  };

  /// nullptr where all are taken.
  [[nodiscard]] Slot* attach();
  void detach(Slot& slot);

  /// An engine's start of turn; true where the gate is up for this turn.
  [[nodiscard]] bool enter(Slot& slot) {
    const uint64_t word = word_.load(std::memory_order_acquire);
    if (slot.seen.load(std::memory_order_relaxed) != 0) {
      // Already online: whoever waits for this token raised the gate before the token.
      slot.seen.store(word, std::memory_order_release);
      return (word & kGates) != 0;
    }
    slot.driver.store(thread_pointer(), std::memory_order_relaxed);
    // From offline the store must be visible before the gate is looked at: Dekker against raise_gate().
    slot.seen.exchange(word, std::memory_order_seq_cst);
    return (word_.load(std::memory_order_seq_cst) & kGates) != 0;
  }
  void leave(Slot& slot) { slot.seen.store(0, std::memory_order_release); }

  [[nodiscard]] bool gate_is_up() const { return (word_.load(std::memory_order_seq_cst) & kGates) != 0; }

  /// Raises the gate and returns the token to wait for. The monitor does, and a program's thread around a
  /// call of its own: the gate is up until each has lowered it.
  uint64_t raise_gate() {
    word_.fetch_add(kOneGate, std::memory_order_seq_cst);
    return advance();
  }
  void lower_gate() { word_.fetch_sub(kOneGate, std::memory_order_seq_cst); }

  /// A token that sessions report once they no longer use what they saw before.
  uint64_t advance() {
    return (word_.fetch_add(kTokenStep, std::memory_order_seq_cst) + kTokenStep) & ~kGates;
  }
  /// Returns when every session is offline or has reported `token`: nothing that was seen before is in use.
  /// Not for a thread that may drive a session itself, or that one of their threads may wait for.
  void wait_for(uint64_t token) const;
  /// Returns when no session copies by checks made before `token` and before the last revoke_tickets().
  /// Waits for no thread where copies can be restarted; else not for the calling thread's own session, nor
  /// for one whose thread is in a call of the program (suspend_own()). Async-signal-safe.
  void outlast_copies(uint64_t token) const;

  /// From +1 to -1 the sessions that the calling thread drives count as passed for outlast_copies(): a signal
  /// handler has interrupted a turn on this thread, and its call may wait for another outlast_copies(). Only
  /// where copies cannot be restarted. Async-signal-safe.
  void suspend_own(int change);

 private:
  /// How many hold the gate up: at most one a thread, of which Linux has 2^22 at most (proc(5), pid_max).
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
  /// What a Guard does; both on one thread.
  void enter() { own().fetch_add(1, std::memory_order_seq_cst); }
  void leave() { own().fetch_sub(1, std::memory_order_release); }

  /// Returns when each guard that was held at the call has been let go.
  void wait() const;

 private:
  static constexpr size_t kStripes = 64;
  struct alignas(64) Stripe {
    std::atomic<uint32_t> count{0};
  };
  [[nodiscard]] std::atomic<uint32_t>& own();

  std::array<Stripe, kStripes> stripes_;
};

/// Waits a little, then a little longer: spins first, then sleeps, since the thread that is waited for may
/// need this CPU. No cancellation point (pthreads(7)): the program's own calls wait by it.
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
