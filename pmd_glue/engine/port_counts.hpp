// SPDX-License-Identifier: BSD-3-Clause
// The live counters of an engine's port, which the engine's thread writes and any thread reads.
#pragma once

#include <atomic>
#include <cstdint>

#include "stack/verbs/objects/port_counters.hpp"

namespace faultline::glue {

/// A counter with one writer thread and any number of reader threads.
class Count {
 public:
  void add(uint64_t more) {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

using PortCounts = verbs::BasicPortCounters<Count>;

}  // namespace faultline::glue
