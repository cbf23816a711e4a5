// SPDX-License-Identifier: BSD-3-Clause
// A memory window: a key over a region; an engine changes the key's range and rights in its data path. One
// engine binds and invalidates it; all engines read it.
#pragma once

#include <atomic>
#include <cstdint>

#include "odp/regions/memory_access.hpp"
#include "stack/base/pause.hpp"

namespace faultline::odp {

struct Region;

/// A snapshot of a window's binding.
struct WindowView {
  Key key = 0;
  Region* region = nullptr;  ///< nullptr: unbound
  uint32_t qpn = 0;
  uint32_t access = 0;
  uint64_t va = 0;
  uint64_t length_bytes = 0;
};

class Window {
 public:
  Window(WindowType window_type, ProtectionDomain protection_domain)
      : type(window_type), domain(protection_domain) {}

  const WindowType type;
  const ProtectionDomain domain;

  /// Any thread. Reads again if the binding changes meanwhile.
  [[nodiscard]] WindowView view() const {
    for (;;) {
      const uint32_t before = sequence_.load(std::memory_order_acquire);
      if ((before & 1) == 0) {
        const WindowView seen{key_.load(std::memory_order_acquire), region_.load(std::memory_order_acquire),
                              qpn_.load(std::memory_order_acquire), access_.load(std::memory_order_acquire),
                              va_.load(std::memory_order_acquire),  length_.load(std::memory_order_acquire)};
        if (sequence_.load(std::memory_order_relaxed) == before) return seen;
      }
      pause_cpu();
    }
  }

  /// Serialises changes by two engines; held for a few stores.
  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) pause_cpu();
  }
  void unlock() { locked_.store(false, std::memory_order_release); }
  /// Requires the lock.
  void set(const WindowView& view) {
    const uint32_t sequence = sequence_.load(std::memory_order_relaxed);
    sequence_.store(sequence + 1, std::memory_order_relaxed);
    // Each store has release order: a reader that sees any of them sees the odd sequence.
    key_.store(view.key, std::memory_order_release);
    region_.store(view.region, std::memory_order_release);
    qpn_.store(view.qpn, std::memory_order_release);
    access_.store(view.access, std::memory_order_release);
    va_.store(view.va, std::memory_order_release);
    length_.store(view.length_bytes, std::memory_order_release);
    sequence_.store(sequence + 2, std::memory_order_release);
  }

 private:
  std::atomic<uint32_t> sequence_{0};
  std::atomic<bool> locked_{false};
  std::atomic<Key> key_{0};
  std::atomic<Region*> region_{nullptr};
  std::atomic<uint32_t> qpn_{0}, access_{0};
  std::atomic<uint64_t> va_{0}, length_{0};
};

}  // namespace faultline::odp
