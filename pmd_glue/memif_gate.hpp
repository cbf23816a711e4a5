// SPDX-License-Identifier: BSD-3-Clause
// net_memif unmaps its shared memory on EAL's interrupt thread the moment the peer goes away, with no regard
// for a burst that is copying from it on another thread (DPDK 22.11, memif_disconnect). The linker hands us
// that call first
// (--wrap=memif_free_regions, pmd_glue/meson.build), and we hold the turns of all memif engines while it
// runs.
#pragma once

#include "pmd_glue/turn_lock.hpp"

namespace faultline::glue {

/// Puts an engine's turns under the gate for as long as the object lives. Constructed and destroyed without
/// the lock held.
class MemifGate {
 public:
  explicit MemifGate(TurnLock& turns);
  ~MemifGate();
  MemifGate(const MemifGate&) = delete;
  MemifGate& operator=(const MemifGate&) = delete;

 private:
  TurnLock& turns_;
};

}  // namespace faultline::glue
