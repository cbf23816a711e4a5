// SPDX-License-Identifier: BSD-3-Clause
// A per-process singleton. Threads do not survive a fork, and a lock that they held stays locked in the
// child. The child therefore makes its own object and never touches the parent's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "stack/base/process/fork_generation.hpp"

namespace faultline {

/// Must have static storage, so that it needs no construction. Nothing is destroyed: programs exit with
/// devices open.
template <typename Object>
class ProcessLocal {
 public:
  /// Returns this process's object, and makes it if there is none.
  [[nodiscard]] Object& get() {
    const uint32_t generation = fork_generation();
    Owned* found = owned_.load(std::memory_order_acquire);
    if (found == nullptr || found->generation != generation) {
      auto made = std::make_unique<Owned>(generation, found);
      // Another thread may have stored its object first.
      if (owned_.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel))
        found = made.release();
    }
    return found->object;
  }

  /// Returns this process's object, or nullptr if get() has not made one.
  [[nodiscard]] Object* find() const {
    Owned* const found = owned_.load(std::memory_order_acquire);
    return found != nullptr && found->generation == fork_generation() ? &found->object : nullptr;
  }

 private:
  struct Owned {
    Owned(uint32_t of, const Owned* before) : generation(of), parents(before) {}
    const uint32_t generation;
    const Owned* const parents;  ///< keeps the parent's object reachable for leak checkers
    Object object;
  };
  std::atomic<Owned*> owned_{nullptr};
};

}  // namespace faultline
