// SPDX-License-Identifier: BSD-3-Clause
// A singleton of each process. Threads do not survive a fork, and what they held locked stays so in the
// child: there it begins anew, and what was the parent's is left as it is for ever.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "stack/base/process/fork_generation.hpp"

namespace faultline {

/// With static storage, so that it needs no construction. Programs exit with devices open: nothing is
/// destroyed.
template <typename Object>
class ProcessLocal {
 public:
  /// The process's own, made where there is none.
  [[nodiscard]] Object& get() {
    const uint32_t generation = fork_generation();
    Owned* found = owned_.load(std::memory_order_acquire);
    if (found == nullptr || found->generation != generation) {
      auto made = std::make_unique<Owned>(generation, found);
      // Another thread may have been faster.
      if (owned_.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel))
        found = made.release();
    }
    return found->object;
  }

  /// ... or nullptr where this process has not made any yet.
  [[nodiscard]] Object* find() const {
    Owned* const found = owned_.load(std::memory_order_acquire);
    return found != nullptr && found->generation == fork_generation() ? &found->object : nullptr;
  }

 private:
  struct Owned {
    Owned(uint32_t of, const Owned* before) : generation(of), parents(before) {}
    const uint32_t generation;
    const Owned* const parents;  ///< kept within reach: a leak checker shall not take it for lost
    Object object;
  };
  std::atomic<Owned*> owned_{nullptr};
};

}  // namespace faultline
