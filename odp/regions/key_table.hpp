// SPDX-License-Identifier: BSD-3-Clause
// Keys: 24-bit index, 8-bit variant. Lookup is one load and a compare, without locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "odp/regions/region.hpp"
#include "odp/regions/window.hpp"
#include "stack/base/lazy_array.hpp"

namespace faultline::odp {

class KeyTable {
 public:
  static constexpr uint32_t kIndexBits = 24;
  static constexpr uint32_t kIndices = 1U << kIndexBits;
  /// Indices are drawn at random from a window of at least this many, and of at least kSpread times the live
  /// keys. One key then reveals nothing about the others, yet few keys touch little of the table.
  static constexpr uint32_t kMinWindow = 1U << 16;
  static constexpr uint32_t kSpread = 4;

  [[nodiscard]] bool allocate() {
    return slots_.allocate(kIndices) && variants_.allocate(kIndices) && windows_.allocate(kIndices);
  }

  /// Sets a fresh key in `region` without publishing it. Returns 0, ENOMEM if the table is full, or the
  /// errno of getrandom(2) if the process may not call it (seccomp): keys must not be guessable.
  [[nodiscard]] int reserve(Region& region);
  /// Makes the region visible. The region must be complete.
  void publish(Region& region) { slots_[region.key >> 8].store(&region, std::memory_order_seq_cst); }
  /// Unpublishes the key. Returns nullptr if it is not live; of two concurrent callers one gets the region.
  [[nodiscard]] Region* withdraw(Key key);
  /// Publishes `fresh`, which has a reserved key, under the live `key`. Returns the old region; a reader
  /// that found it earlier may still hold it.
  [[nodiscard]] Region* replace(Key key, Region& fresh);
  /// Frees the index. Requires that no reader can hold the region any more.
  void release(Key key);

  // Windows share the key numbers. A window is looked up only if no region has the key.

  /// Sets a fresh key in `window` and in `key` without publishing it. An errno as for a region.
  [[nodiscard]] int reserve(Window& window, Key& key);
  /// Makes the window visible. The thread that will withdraw it must be able to find it by then.
  void publish(Window& window, Key key) { windows_[key >> 8].store(&window, std::memory_order_release); }
  /// Unpublishes the window. Returns nullptr if there is none at the key's index. Any variant matches: after
  /// a failed posted bind the owner may not know the current variant.
  [[nodiscard]] Window* withdraw_window(Key key);
  /// Frees the index; `key` is the window's last key.
  void release_window(Key key);
  [[nodiscard]] Window* find_window(Key key) const {
    return windows_[key >> 8].load(std::memory_order_acquire);
  }

  /// Returns nullptr for a key that was never issued, is stale, or is not published yet.
  [[nodiscard]] Region* find(Key key) const {
    Region* region = slots_[key >> 8].load(std::memory_order_acquire);
    return region != nullptr && is_live(region) && region->key == key ? region : nullptr;
  }

 private:
  /// Holds an index between reserve and publish, and between withdraw and release.
  [[nodiscard]] int reserve_index(Key& key);
  void give_back(Key key);
  [[nodiscard]] Region* reserved() const { return const_cast<Region*>(&reserved_mark_); }
  [[nodiscard]] bool is_live(const Region* region) const { return region != &reserved_mark_; }

  Region reserved_mark_;
  LazyArray<std::atomic<Region*>> slots_;
  LazyArray<std::atomic<Window*>> windows_;
  LazyArray<uint8_t> variants_;  ///< of the last key at each index
  std::mutex mutex_;             ///< guards reserve, withdraw, release
  uint32_t taken_ = 0;
};

}  // namespace faultline::odp
