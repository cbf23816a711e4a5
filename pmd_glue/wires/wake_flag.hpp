// SPDX-License-Identifier: BSD-3-Clause
// Wake-up flags of the two ends of a memif link through faultline-switch. A shared page has a sleep flag for
// each end, and each end has an event descriptor. A sender wakes the other end if its flag is set. An end
// that is about to sleep sets its flag, polls its rings once more, and then waits. So neither end needs to
// poll.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

class WakeFlag {
 public:
  enum class End : uint8_t { switch_, device };
  static constexpr size_t kDescriptors = 3;

  /// Creates the flags of one seat, in the switch. `switch_event` wakes the switch. Returns nullptr with
  /// errno on failure.
  [[nodiscard]] static std::unique_ptr<WakeFlag> create(const UniqueFd& switch_event);
  /// Takes the descriptors that the device receives with its seat. Returns nullptr with errno on failure.
  [[nodiscard]] static std::unique_ptr<WakeFlag> adopt(std::array<UniqueFd, kDescriptors> descriptors);
  /// Replaces the descriptors with those of another switch, while other threads ring and wait. With `lost`
  /// the program has closed the old descriptors: their numbers may be in use, so they are neither closed nor
  /// used again. Returns false with errno on failure.
  [[nodiscard]] bool renew(std::array<UniqueFd, kDescriptors> descriptors, bool lost);
  ~WakeFlag();
  WakeFlag(const WakeFlag&) = delete;
  WakeFlag& operator=(const WakeFlag&) = delete;

  /// Returns the descriptors for SCM_RIGHTS, in adopt()'s order.
  [[nodiscard]] std::array<int, kDescriptors> descriptors() const;

  /// Wakes the end if it sleeps. Call after frames were sent to that end.
  void ring(End end) {
    // The ring index is stored before the flag is read; the other end stores the flag before it reads the
    // index.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleeps(end).load(std::memory_order_relaxed) != 0) wake(end);
  }

  /// Sets the end's sleep flag. The end polls for frames once more after this.
  void set_asleep(End end) {
    sleeps(end).store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void set_awake(End end) { sleeps(end).store(0, std::memory_order_relaxed); }
  /// The event descriptor of the end: readable after ring(); a read resets it.
  [[nodiscard]] int event(End end) const {
    return numbers_[static_cast<size_t>(end)].load(std::memory_order_relaxed);
  }

 private:
  struct Page {
    struct alignas(64) Flag {
      std::atomic<uint32_t> value;
    };
    std::array<Flag, 2> sleeps;
  };

  WakeFlag() = default;
  [[nodiscard]] bool map(void* place, int flags);
  [[nodiscard]] std::atomic<uint32_t>& sleeps(End end) {
    return page_->sleeps[static_cast<size_t>(end)].value;
  }
  void wake(End end);

  UniqueFd memory_;
  std::array<UniqueFd, 2> events_;
  std::array<std::atomic<int>, 2> numbers_{-1, -1};  ///< descriptor numbers of events_, for all threads
  Page* page_ = nullptr;
};

}  // namespace faultline::glue
