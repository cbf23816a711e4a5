// SPDX-License-Identifier: BSD-3-Clause
// What a core counts. Single writer: the core's thread; readers take relaxed snapshots through
// Core::counters().
#pragma once

#include <array>
#include <cstdint>

#include "stack/wire/packet/packet.hpp"

namespace faultline::transport {

/// Why a parsed packet went no further, by rung of the guard ladder.
enum class DropReason : uint8_t {
  unknown_qpn,
  wrong_service,
  qp_state,
  pkey,
  qkey,
  source_address,
  path_mtu,
  payload_rule,
  duplicate,
  out_of_sequence,
  no_receive_wqe,
  park_full,
  parked_flushed,
  unexpected_response,
  stale_ack,
  ud_too_long,
  access,
  cnp,
  unsupported,
  no_shared_queue,
  multicast_group,
  stale_request,
  own_multicast,
  destination_address,
  count_
};
[[nodiscard]] std::string_view name_of(DropReason reason);

struct CoreCounters {
  uint64_t rx_packets = 0;
  uint64_t rx_bytes = 0;
  uint64_t tx_packets = 0;
  uint64_t tx_bytes = 0;
  std::array<uint64_t, static_cast<size_t>(wire::ParseError::count_)> parse_errors{};
  std::array<uint64_t, static_cast<size_t>(DropReason::count_)> drops{};
  uint64_t messages_sent = 0;      ///< send WQEs completed with success
  uint64_t messages_received = 0;  ///< messages that the responder completed
  uint64_t acks_sent = 0;
  uint64_t naks_sent = 0;
  uint64_t naks_received = 0;
  uint64_t rnr_naks_sent = 0;
  uint64_t rnr_naks_received = 0;
  uint64_t retransmitted_packets = 0;
  uint64_t timeouts = 0;
  uint64_t probes_sent = 0;  ///< oldest packets sent again before their time-out
  uint64_t selective_acks_sent = 0;
  uint64_t selective_acks_received = 0;
  uint64_t packets_held = 0;  ///< received behind a gap and kept
  uint64_t duplicate_requests = 0;
  uint64_t out_of_sequence = 0;
  uint64_t faults_requester = 0;  ///< sends and READ destinations held for a page
  uint64_t faults_responder = 0;  ///< packets parked or READs held for a page
  uint64_t packets_parked = 0;
  uint64_t ecn_marked_received = 0;
  uint64_t cnps_sent = 0;
  uint64_t cnps_received = 0;
  uint64_t management_received = 0;  ///< datagrams to QP1
  uint64_t management_sent = 0;
  uint64_t pacing_waits = 0;   ///< times that a QP had to wait for its pace
  uint64_t tx_no_buffers = 0;  ///< allocation came back short
  uint64_t tx_ring_full = 0;   ///< transmit took fewer than offered
  uint64_t cq_overruns = 0;
  uint64_t fault_queue_full = 0;
};

}  // namespace faultline::transport
