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
  /// keys: one key tells nothing of the others, yet few keys touch little of the table.
  static constexpr uint32_t kMinWindow = 1U << 16;
  static constexpr uint32_t kSpread = 4;

  [[nodiscard]] bool allocate() {
    return slots_.allocate(kIndices) && variants_.allocate(kIndices) && windows_.allocate(kIndices);
  }

  /// Sets a fresh key in `region` without publishing it. 0, ENOMEM where the table is full, or the errno of
  /// getrandom(2) where the process may not call it (seccomp): keys must not be guessable.
  [[nodiscard]] int reserve(Region& region);
  /// Makes the region visible: everything of it must be ready.
  void publish(Region& region) { slots_[region.key >> 8].store(&region, std::memory_order_seq_cst); }
  /// Takes the key out of sight. nullptr where it is not live; of two callers one gets the region.
  [[nodiscard]] Region* withdraw(Key key);
  /// Puts a region that has a reserved key in a live one's place, under that one's key. The old one, which
  /// whoever found it before may still hold.
  [[nodiscard]] Region* replace(Key key, Region& fresh);
  /// Gives the index back. Only after nobody can hold the region any more.
  void release(Key key);

  // Windows have keys of the same numbers. They are looked for only where a key is no region's.

  /// Sets a fresh key in `window` and in `key` without publishing it. An errno as for a region.
  [[nodiscard]] int reserve(Window& window, Key& key);
  /// Makes the window visible: whoever takes it away must be able to find it by then.
  void publish(Window& window, Key key) { windows_[key >> 8].store(&window, std::memory_order_release); }
  /// Takes the window out of sight. nullptr where there is none at the key's index: its owner may not know
  /// the variant that it has now, since a bind that was posted may have failed.
  [[nodiscard]] Window* withdraw_window(Key key);
  /// Gives the index back; `key` is the one that it had last.
  void release_window(Key key);
  [[nodiscard]] Window* find_window(Key key) const {
    return windows_[key >> 8].load(std::memory_order_acquire);
  }

  /// nullptr for a key that was never given out, is stale, or is not published yet.
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
  LazyArray<uint8_t> variants_;  ///< of the last key at that index
  std::mutex mutex_;             ///< reserve, withdraw, release
  uint32_t taken_ = 0;
};

}  // namespace faultline::odp
