// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/memif/memif_gate.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "stack/base/process/process_local.hpp"

namespace faultline::glue {

struct MemifGates {
  std::mutex mutex;
  std::vector<MemifGate*> gates;

  void close() {
    mutex.lock();
    for (MemifGate* gate : gates) gate->turns_.lock();
  }
  void open() {
    for (MemifGate* gate : gates) gate->turns_.unlock();
    mutex.unlock();
  }
  void take_all() {
    // Enough for the longest ring (2^14 descriptors) in bursts of at least 16 frames.
    constexpr int kMostBursts = 1024;
    const std::lock_guard guard(mutex);
    for (MemifGate* gate : gates) {
      const std::lock_guard turn(gate->turns_);
      for (int bursts = 0; bursts < kMostBursts && gate->take_burst_(); ++bursts) continue;
    }
  }
};

namespace {

MemifGates& gates() {
  static constinit ProcessLocal<MemifGates> instance;  // EAL's interrupt thread outlives static destructors
  return instance.get();
}

}  // namespace

MemifGate::MemifGate(TurnLock& turns, std::function<bool()> take_burst)
    : turns_(turns), take_burst_(std::move(take_burst)) {
  MemifGates& all = gates();
  const std::lock_guard guard(all.mutex);
  all.gates.push_back(this);
}

MemifGate::~MemifGate() {
  MemifGates& all = gates();
  const std::lock_guard guard(all.mutex);
  std::erase(all.gates, this);
}

void close_memif_gates() {
  gates().close();
}

void open_memif_gates() {
  gates().open();
}

void take_what_has_come() {
  gates().take_all();
}

}  // namespace faultline::glue
