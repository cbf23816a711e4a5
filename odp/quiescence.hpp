// SPDX-License-Identifier: BSD-3-Clause
// The gate and the token: how the monitor stops all engines of a domain, and how anyone waits until what an
// engine may have seen at a moment is no longer in use. As rte_rcu_qsbr does it, with the gate in the same
// word as the token, so that an engine's turn begins with one load.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace faultline::odp {

class Quiescence {
 public:
  static constexpr size_t kMaxSessions = 256;

  /// What one engine has seen. 0: offline.
  struct alignas(64) Slot {
    std::atomic<uint64_t> seen{0};
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
      return (word & kGate) != 0;
    }
    // From offline the store must be visible before the gate is looked at: Dekker against raise_gate().
    slot.seen.exchange(word, std::memory_order_seq_cst);
    return (word_.load(std::memory_order_seq_cst) & kGate) != 0;
  }
  void leave(Slot& slot) { slot.seen.store(0, std::memory_order_release); }

  [[nodiscard]] bool gate_is_up() const { return (word_.load(std::memory_order_seq_cst) & kGate) != 0; }

  /// Raises the gate and returns the token to wait for. Only the monitor does.
  uint64_t raise_gate() {
    word_.fetch_or(kGate, std::memory_order_seq_cst);
    return advance();
  }
  void lower_gate() { word_.fetch_and(~kGate, std::memory_order_seq_cst); }

  /// A token that sessions report once they no longer use what they saw before.
  uint64_t advance() {
    return (word_.fetch_add(kTokenStep, std::memory_order_seq_cst) + kTokenStep) & ~kGate;
  }
  /// Returns when every session is offline or has reported `token`.
  void wait_for(uint64_t token) const;

 private:
  static constexpr uint64_t kGate = 1;
  static constexpr uint64_t kTokenStep = 2;

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
    explicit Guard(ReaderStripes& stripes) : count_(stripes.own()) {
      count_.fetch_add(1, std::memory_order_seq_cst);
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { count_.fetch_sub(1, std::memory_order_release); }

   private:
    std::atomic<uint32_t>& count_;
  };

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
/// need this CPU.
class Backoff {
 public:
  void pause();

 private:
  unsigned rounds_ = 0;
};

}  // namespace faultline::odp
