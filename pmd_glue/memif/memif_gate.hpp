// SPDX-License-Identifier: BSD-3-Clause
// net_memif unmaps its shared memory on EAL's interrupt thread as soon as the peer disconnects (DPDK 22.11,
// memif_disconnect). Another thread may still copy a burst from that memory. The linker's --wrap interposes
// on that call (memif_hooks.cpp), which runs with the turn locks of all memif engines held.
//
// A peer may send frames and exit at once, and its ring is unmapped with the link. So the engines drain their
// rings before the end of a link is processed (recvmsg). Frames that a peer has written to its ring before it
// is killed therefore arrive.
#pragma once

#include <functional>

#include "stack/base/turn_lock.hpp"

namespace faultline::glue {

/// Registers an engine's turn lock with the gate while the object lives. Constructed and destroyed without
/// the lock held. `take_burst` is called with the lock held; it returns true if a frame has arrived.
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

/// Takes the turn locks of all memif engines: no turn runs until open_memif_gates().
void close_memif_gates();
void open_memif_gates();
/// Lets every engine receive the frames in its rings.
void take_what_has_come();

}  // namespace faultline::glue
