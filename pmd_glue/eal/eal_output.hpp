// SPDX-License-Identifier: BSD-3-Clause
// Suppresses DPDK's output to stdout during its start: EAL prints its usage text for an unknown option.
// Stdout belongs to the program; EAL's log has the reason.
#pragma once

namespace faultline::glue {

/// While an object lives, DPDK's output on this thread is dropped. Other threads print as before.
class EalOutputDropped {
 public:
  EalOutputDropped();
  ~EalOutputDropped();
  EalOutputDropped(const EalOutputDropped&) = delete;
  EalOutputDropped& operator=(const EalOutputDropped&) = delete;
};

}  // namespace faultline::glue
