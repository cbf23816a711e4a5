// SPDX-License-Identifier: BSD-3-Clause
// What DPDK prints to stdout while it starts: the usage text of EAL, for an option that it does not know.
// Stdout is the program's own, so none of it gets there; EAL's reason is in its log.
#pragma once

namespace faultline::glue {

/// While one is there, what DPDK prints on this thread is dropped. Other threads print as ever.
class EalOutputDropped {
 public:
  EalOutputDropped();
  ~EalOutputDropped();
  EalOutputDropped(const EalOutputDropped&) = delete;
  EalOutputDropped& operator=(const EalOutputDropped&) = delete;
};

}  // namespace faultline::glue
