// SPDX-License-Identifier: BSD-3-Clause
// The doorbells of a process on a wire: a page that its peers write. Each peer has a bit, so the owner looks
// only at the links that have frames. The owner does not trust the page: a bit that is set without a reason
// costs one look, and a bit that is lost is found by the owner's regular look at all links.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

/// The frames for which a process that does not poll is woken.
enum class WakeFor : uint32_t {
  nothing,  ///< it polls
  all_frames,
  /// All but pure acknowledgements: the program polls its CQ when it wants to see them.
  requests
};

class Inbox {
 public:
  static constexpr uint32_t kSeats = 1024;
  static constexpr size_t kBytes = 4096;

  /// Creates the page of this process. Returns nullptr with errno on failure.
  [[nodiscard]] static std::unique_ptr<Inbox> create();
  /// Maps the page of a peer; `event` wakes the peer. Returns nullptr with errno if either is not what it
  /// should be.
  [[nodiscard]] static std::unique_ptr<Inbox> adopt(UniqueFd memory, UniqueFd event);
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  /// The page's file, for SCM_RIGHTS. Only of create().
  [[nodiscard]] int memory() const { return memory_.get(); }
  /// The program has closed the descriptors: their numbers may be in use. The page remains, and no ring wakes
  /// any more.
  void lose_descriptors() {
    static_cast<void>(memory_.release());
    static_cast<void>(event_.release());
  }

  // --- the owner ---

  [[nodiscard]] bool has_rings() const { return page_->any.load(std::memory_order_relaxed) != 0; }
  /// Calls `on_ring` for each peer that has rung since the last call.
  template <typename OnRing>
  void take_rings(OnRing on_ring) {
    uint32_t words = page_->any.exchange(0);
    for (; words != 0; words &= words - 1) {
      const auto word = static_cast<uint32_t>(std::countr_zero(words));
      if (word >= kWords) return;
      for (uint64_t bits = page_->words[word].exchange(0); bits != 0; bits &= bits - 1)
        on_ring(word * kBitsOfWord + static_cast<uint32_t>(std::countr_zero(bits)));
    }
  }
  /// The next ring writes to the event. The owner looks at its links once more after this.
  void set_asleep(WakeFor what = WakeFor::all_frames) { page_->asleep.store(static_cast<uint32_t>(what)); }
  void set_awake() {
    page_->asleep.store(static_cast<uint32_t>(WakeFor::nothing), std::memory_order_relaxed);
  }

  // --- a peer ---

  /// What the owner wants to be woken for at this moment. A value that does not exist wakes it.
  [[nodiscard]] WakeFor wakes_for() const { return WakeFor{page_->asleep.load(std::memory_order_relaxed)}; }
  /// Rings for the peer at that seat. Wakes the owner if it sleeps, unless it does not want to be woken for
  /// frames that are acknowledgements only.
  void ring(uint32_t seat, bool only_acks = false);

 private:
  static constexpr uint32_t kBitsOfWord = 64;
  static constexpr uint32_t kWords = kSeats / kBitsOfWord;

  struct Page {
    alignas(64) std::atomic<uint32_t> any;  ///< a bit for each word that is not 0
    std::atomic<uint32_t> asleep;
    alignas(64) std::array<std::atomic<uint64_t>, kWords> words;
  };
  static_assert(sizeof(Page) <= kBytes);

  Inbox(UniqueFd memory, UniqueFd event, Page* page);

  UniqueFd memory_;
  UniqueFd event_;
  Page* const page_;
};

}  // namespace faultline::glue
