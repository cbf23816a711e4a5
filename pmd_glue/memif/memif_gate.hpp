// SPDX-License-Identifier: BSD-3-Clause
// net_memif unmaps its shared memory on EAL's interrupt thread the moment the peer goes away, with no regard
// for a burst that is copying from it on another thread (DPDK 22.11, memif_disconnect). The linker hands us
// that call first (memif_hooks.cpp), and we hold the turns of all memif engines while it runs.
//
// A peer that ends at once has perhaps sent a moment before, and what lies in its ring goes with that memory.
// So before the end of a link is looked at (recvmsg), the engines take what has come: the frames of a peer
// that is killed after it has written to its ring arrive.
#pragma once

#include <functional>

#include "stack/base/turn_lock.hpp"

namespace faultline::glue {

/// Puts an engine's turns under the gate for as long as the object lives. Constructed and destroyed without
/// the lock held. `take_burst` is called with it: true if anything has come.
class MemifGate {
 public:
  MemifGate(TurnLock& turns, std::function<bool()> take_burst);
  ~MemifGate();
  MemifGate(const MemifGate&) = delete;
  MemifGate& operator=(const MemifGate&) = delete;

 private:
  friend struct MemifGates;
  TurnLock& turns_;
  const std::function<bool()> take_burst_;
};

/// Waits until nobody is in a turn, and keeps everybody from one until open_memif_gates().
void close_memif_gates();
void open_memif_gates();
/// All engines take what lies in their rings.
void take_what_has_come();

}  // namespace faultline::glue
