// SPDX-License-Identifier: BSD-3-Clause
#include "odp/regions/key_table.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

#include <sys/random.h>

namespace faultline::odp {
namespace {

/// Returns 0 or an errno. A signal may interrupt the call (EINTR); seccomp may refuse it.
int draw_random(uint64_t& bits) {
  for (;;) {
    const ssize_t bytes = getrandom(&bits, sizeof bits, 0);
    if (bytes == static_cast<ssize_t>(sizeof bits)) return 0;
    if (bytes < 0 && errno != EINTR) return errno;
  }
}

}  // namespace

int KeyTable::reserve(Region& region) {
  const std::lock_guard lock(mutex_);
  return reserve_index(region.key);
}

int KeyTable::reserve_index(Key& key) {
  // Index 0 is never issued, so that no key is a small number.
  if (taken_ >= kIndices - 1) return ENOMEM;
  const uint64_t wanted = std::bit_ceil((uint64_t{taken_} + 1) * kSpread);
  const auto window = static_cast<uint32_t>(std::clamp<uint64_t>(wanted, kMinWindow, kIndices));
  uint64_t random = 0;
  if (const int error = draw_random(random); error != 0) return error;
  auto index = static_cast<uint32_t>(random % window);
  // At most a quarter of the window is taken, unless the window is the whole table: the search ends soon.
  while (index == 0 || slots_[index].load(std::memory_order_relaxed) != nullptr)
    index = (index + 1) & (window - 1);
  slots_[index].store(reserved(), std::memory_order_relaxed);
  ++taken_;
  // Never the index's previous variant: its stale key must not become live again at once.
  const auto step = static_cast<uint8_t>(1 + (random >> 32) % 255);
  variants_[index] = static_cast<uint8_t>(variants_[index] + step);
  key = (index << 8) | variants_[index];
  return 0;
}

int KeyTable::reserve(Window& window, Key& key) {
  const std::lock_guard lock(mutex_);
  const int error = reserve_index(key);
  if (error == 0) window.set({.key = key});
  return error;
}

Window* KeyTable::withdraw_window(Key key) {
  const std::lock_guard lock(mutex_);
  Window* const window = find_window(key);
  if (window == nullptr) return nullptr;
  windows_[key >> 8].store(nullptr, std::memory_order_seq_cst);
  return window;
}

void KeyTable::release_window(Key key) {
  const std::lock_guard lock(mutex_);
  variants_[key >> 8] = static_cast<uint8_t>(key);
  slots_[key >> 8].store(nullptr, std::memory_order_relaxed);
  --taken_;
}

Region* KeyTable::withdraw(Key key) {
  const std::lock_guard lock(mutex_);
  Region* region = find(key);
  if (region != nullptr) slots_[key >> 8].store(reserved(), std::memory_order_seq_cst);
  return region;
}

Region* KeyTable::replace(Key key, Region& fresh) {
  const std::lock_guard lock(mutex_);
  Region* const old = find(key);
  give_back(fresh.key);
  fresh.key = key;
  slots_[key >> 8].store(&fresh, std::memory_order_seq_cst);
  return old;
}

void KeyTable::release(Key key) {
  const std::lock_guard lock(mutex_);
  give_back(key);
}

void KeyTable::give_back(Key key) {
  slots_[key >> 8].store(nullptr, std::memory_order_relaxed);
  --taken_;
}

}  // namespace faultline::odp
