// SPDX-License-Identifier: BSD-3-Clause
// A struct sigaction that handlers read while other threads replace it. Readers and writers neither block nor
// allocate.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <csignal>
#include <cstdint>

#include <sched.h>

namespace faultline {

/// Constant-initialised to SIG_DFL.
class SavedAction {
 public:
  /// An action, and the version that replace() compares.
  struct Seen {
    struct sigaction action;
    uint64_t current;
  };

  /// Returns a consistent action. Lock-free: it repeats only if another thread replaced the action meanwhile.
  [[nodiscard]] Seen load() const {
    for (;;) {
      const uint64_t current = current_.load(std::memory_order_acquire);
      const Words words = copies_[current % kCopies].read();
      // A writer reuses a copy only after current_ has left it for good. The acquiring loads of the words
      // order this load after them.
      if (current_.load(std::memory_order_relaxed) == current)
        return {std::bit_cast<struct sigaction>(words), current};
    }
  }

  /// Replaces the action and returns the previous one. The caller has all signals blocked: a handler that
  /// left this function by siglongjmp would claim a copy forever.
  struct sigaction exchange(const struct sigaction& action) {
    const size_t mine = claim(action);
    uint64_t current = current_.load(std::memory_order_relaxed);
    while (!current_.compare_exchange_weak(current, next(current, mine), std::memory_order_acq_rel)) {
    }
    return retire(current);
  }

  /// Replaces the action only if it is still the one that load() returned.
  void replace(const Seen& seen, const struct sigaction& action) {
    const size_t mine = claim(action);
    uint64_t current = seen.current;
    if (current_.compare_exchange_strong(current, next(current, mine), std::memory_order_acq_rel))
      static_cast<void>(retire(current));
    else
      release(mine);
  }

  /// Frees the copies of writers; call in a forked child, in which those threads do not exist.
  void forget_writers() {
    claims_.store(uint64_t{1} << (current_.load(std::memory_order_relaxed) % kCopies),
                  std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kCopies = 64;  // one per active writer, and the current one
  static_assert(sizeof(struct sigaction) % sizeof(uint64_t) == 0);
  using Words = std::array<uint64_t, sizeof(struct sigaction) / sizeof(uint64_t)>;

  struct Copy {
    std::array<std::atomic<uint64_t>, Words{}.size()> words{};

    [[nodiscard]] Words read() const {
      Words out;
      for (size_t i = 0; i < out.size(); ++i) out[i] = words[i].load(std::memory_order_acquire);
      return out;
    }
    void write(const Words& in) {
      for (size_t i = 0; i < in.size(); ++i) words[i].store(in[i], std::memory_order_release);
    }
  };

  [[nodiscard]] static uint64_t next(uint64_t current, size_t copy) {
    return (current / kCopies + 1) * kCopies + copy;
  }

  [[nodiscard]] size_t claim(const struct sigaction& action) {
    uint64_t claims = claims_.load(std::memory_order_relaxed);
    for (;;) {
      if (claims == ~uint64_t{0}) {
        sched_yield();  // 63 threads are inside this function
        claims = claims_.load(std::memory_order_relaxed);
        continue;
      }
      const auto free = static_cast<size_t>(std::countr_one(claims));
      if (!claims_.compare_exchange_weak(claims, claims | uint64_t{1} << free, std::memory_order_acquire))
        continue;
      // A reader that sees one of these releasing stores also sees that current_ has changed.
      copies_[free].write(std::bit_cast<Words>(action));
      return free;
    }
  }
  /// Returns the action in a copy that is no longer current and that only the caller uses; releases the copy.
  [[nodiscard]] struct sigaction retire(uint64_t was_current) {
    const size_t copy = was_current % kCopies;
    const Words words = copies_[copy].read();
    release(copy);
    return std::bit_cast<struct sigaction>(words);
  }
  void release(size_t copy) { claims_.fetch_and(~(uint64_t{1} << copy), std::memory_order_release); }

  std::atomic<uint64_t> current_{0};  ///< version * kCopies + copy
  std::atomic<uint64_t> claims_{1};   ///< a bit for each copy that is current or that a writer has claimed
  std::array<Copy, kCopies> copies_{};
};

}  // namespace faultline
