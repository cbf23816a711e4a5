// SPDX-License-Identifier: BSD-3-Clause
// How the two ends of a memif link through faultline-switch wake each other without a busy CPU: a page that
// both see, where each says that it sleeps, and an event descriptor for each. Whoever has sent a frame rings
// where the other sleeps; whoever wants to sleep says so, looks at its rings once more, and then waits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

class SwitchBell {
 public:
  enum class End : uint8_t { switch_, device };
  static constexpr size_t kDescriptors = 3;

  /// The switch makes one for each seat, with the event that wakes it. nullptr with errno.
  [[nodiscard]] static std::unique_ptr<SwitchBell> create(const UniqueFd& switch_event);
  /// The device gets them with its seat. nullptr with errno.
  [[nodiscard]] static std::unique_ptr<SwitchBell> adopt(std::array<UniqueFd, kDescriptors> descriptors);
  /// The device's end takes another switch's in place of these, while other threads ring and wait. With
  /// `lost` the old descriptors' numbers are the program's by now: they are neither closed nor used again.
  /// False with errno.
  [[nodiscard]] bool renew(std::array<UniqueFd, kDescriptors> descriptors, bool lost);
  ~SwitchBell();
  SwitchBell(const SwitchBell&) = delete;
  SwitchBell& operator=(const SwitchBell&) = delete;

  /// For SCM_RIGHTS, in adopt's order.
  [[nodiscard]] std::array<int, kDescriptors> descriptors() const;

  /// After frames were sent to that end.
  void ring(End end) {
    // The frame's index is stored before the flag is read (and the flag before the index, at the other end).
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleeps(end).load(std::memory_order_relaxed) != 0) wake(end);
  }

  /// From now on the end wants to be rung for. It looks for frames once more after this.
  void say_asleep(End end) {
    sleeps(end).store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void say_awake(End end) { sleeps(end).store(0, std::memory_order_relaxed); }
  /// Readable when the end was rung for; read it to silence it.
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

  SwitchBell() = default;
  [[nodiscard]] bool map(void* place, int flags);
  [[nodiscard]] std::atomic<uint32_t>& sleeps(End end) {
    return page_->sleeps[static_cast<size_t>(end)].value;
  }
  void wake(End end);

  UniqueFd memory_;
  std::array<UniqueFd, 2> events_;
  std::array<std::atomic<int>, 2> numbers_{-1, -1};  ///< of events_, for all threads
  Page* page_ = nullptr;
};

}  // namespace faultline::glue
