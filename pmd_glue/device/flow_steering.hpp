// SPDX-License-Identifier: BSD-3-Clause
// Points the entries of a NIC's redirection table to the cores that own their frames. The peer's UDP source
// port selects the entry, and this device's QPN the core, so about half of the frames of two cores come to
// the wrong one and are handed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pmd_glue/engine/hand_over.hpp"
#include "pmd_glue/ports/port.hpp"
#include "pmd_glue/ports/rss_table.hpp"

namespace faultline::glue {

class FlowSteering {
 public:
  /// The votes are `hand_over`'s. The three outlive this object.
  FlowSteering(const EthernetPort& port, RssTable& table, HandOver& hand_over);

  /// Points entries by the votes since the last change. Returns how many have changed. One thread calls it.
  size_t update();

 private:
  /// Frames of one owner beyond those of others before an entry changes. A change may reorder the packets of
  /// a flow, so each change of an entry doubles its threshold: two equal flows with different owners come to
  /// rest.
  static constexpr uint32_t kFirstThreshold = 32;

  const EthernetPort& port_;
  RssTable& table_;
  HandOver& hand_over_;
  std::vector<uint32_t> thresholds_;  ///< by entry
};

}  // namespace faultline::glue
