// SPDX-License-Identifier: BSD-3-Clause
// Counters of a core. The core's thread is the only writer; readers take relaxed snapshots through
// Core::counters().
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <tuple>

#include "stack/base/counter_row.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::transport {

/// Reasons for which a parsed packet is dropped, by the check that failed.
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
/// Returns a phrase for docs/counters.md.
[[nodiscard]] std::string_view help_of(DropReason reason);

/// kCoreCounterRows describes each member.
struct CoreCounters {
  uint64_t rx_packets = 0;
  uint64_t rx_bytes = 0;
  uint64_t tx_packets = 0;
  uint64_t tx_bytes = 0;
  std::array<uint64_t, static_cast<size_t>(wire::ParseError::count_)> parse_errors{};
  std::array<uint64_t, static_cast<size_t>(DropReason::count_)> drops{};
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t acks_sent = 0;
  uint64_t naks_sent = 0;
  uint64_t naks_received = 0;
  uint64_t sequence_naks_received = 0;
  uint64_t rnr_naks_sent = 0;
  uint64_t rnr_naks_received = 0;
  uint64_t retransmitted_packets = 0;
  uint64_t timeouts = 0;
  uint64_t retries_exceeded = 0;
  uint64_t rnr_retries_exceeded = 0;
  uint64_t probes_sent = 0;
  uint64_t selective_acks_sent = 0;
  uint64_t selective_acks_received = 0;
  uint64_t packets_held = 0;
  uint64_t duplicate_requests = 0;
  uint64_t out_of_sequence = 0;
  uint64_t faults_requester = 0;
  uint64_t faults_responder = 0;
  uint64_t packets_parked = 0;
  uint64_t ecn_marked_received = 0;
  uint64_t cnps_sent = 0;
  uint64_t cnps_received = 0;
  uint64_t management_received = 0;
  uint64_t management_sent = 0;
  uint64_t pacing_waits = 0;
  uint64_t tx_no_buffers = 0;
  uint64_t tx_ring_full = 0;
  uint64_t cq_overruns = 0;
  uint64_t fault_queue_full = 0;
};

inline constexpr CounterRow<CoreCounters> kCoreCounterRows[] = {
    {"rx_packets", "packets", CounterKind::count, "RoCEv2 packets received", &CoreCounters::rx_packets},
    {"rx_bytes", "bytes", CounterKind::count, "bytes of received packets", &CoreCounters::rx_bytes},
    {"tx_packets", "packets", CounterKind::count, "RoCEv2 packets sent", &CoreCounters::tx_packets},
    {"tx_bytes", "bytes", CounterKind::count, "bytes of sent packets", &CoreCounters::tx_bytes},
    {"messages_sent", "messages", CounterKind::count, "send work requests completed with success",
     &CoreCounters::messages_sent},
    {"messages_received", "messages", CounterKind::count, "messages that the responder completed",
     &CoreCounters::messages_received},
    {"acks_sent", "packets", CounterKind::count, "ACKs sent", &CoreCounters::acks_sent},
    {"naks_sent", "packets", CounterKind::count, "NAKs sent, RNR NAKs left out", &CoreCounters::naks_sent},
    {"naks_received", "packets", CounterKind::count, "NAKs received, RNR NAKs left out",
     &CoreCounters::naks_received},
    {"sequence_naks_received", "packets", CounterKind::count,
     "part of naks_received that reports a PSN sequence error", &CoreCounters::sequence_naks_received},
    {"rnr_naks_sent", "packets", CounterKind::count, "RNR NAKs sent", &CoreCounters::rnr_naks_sent},
    {"rnr_naks_received", "packets", CounterKind::count, "RNR NAKs received",
     &CoreCounters::rnr_naks_received},
    {"retransmitted_packets", "packets", CounterKind::count, "packets sent again",
     &CoreCounters::retransmitted_packets},
    {"timeouts", "timeouts", CounterKind::count, "local ACK timeouts", &CoreCounters::timeouts},
    {"retries_exceeded", "QPs", CounterKind::count, "QPs that failed because retry_cnt was used up",
     &CoreCounters::retries_exceeded},
    {"rnr_retries_exceeded", "QPs", CounterKind::count, "QPs that failed because rnr_retry was used up",
     &CoreCounters::rnr_retries_exceeded},
    {"probes_sent", "packets", CounterKind::count, "oldest packets sent again before their timeout",
     &CoreCounters::probes_sent},
    {"selective_acks_sent", "packets", CounterKind::count, "selective acknowledgements sent",
     &CoreCounters::selective_acks_sent},
    {"selective_acks_received", "packets", CounterKind::count, "selective acknowledgements received",
     &CoreCounters::selective_acks_received},
    {"packets_held", "packets", CounterKind::count, "packets received behind a gap and kept",
     &CoreCounters::packets_held},
    {"duplicate_requests", "packets", CounterKind::count, "requests received a second time",
     &CoreCounters::duplicate_requests},
    {"out_of_sequence", "packets", CounterKind::count, "requests received behind a gap",
     &CoreCounters::out_of_sequence},
    {"faults_requester", "faults", CounterKind::count, "sends and READ destinations that waited for a page",
     &CoreCounters::faults_requester},
    {"faults_responder", "faults", CounterKind::count, "packets parked, and READs that waited for a page",
     &CoreCounters::faults_responder},
    {"packets_parked", "packets", CounterKind::count, "packets parked until a page is resident",
     &CoreCounters::packets_parked},
    {"ecn_marked_received", "packets", CounterKind::count, "packets received with the CE mark",
     &CoreCounters::ecn_marked_received},
    {"cnps_sent", "packets", CounterKind::count, "congestion notification packets sent",
     &CoreCounters::cnps_sent},
    {"cnps_received", "packets", CounterKind::count, "congestion notification packets received",
     &CoreCounters::cnps_received},
    {"management_received", "datagrams", CounterKind::count, "datagrams received on QP1",
     &CoreCounters::management_received},
    {"management_sent", "datagrams", CounterKind::count, "datagrams sent from QP1",
     &CoreCounters::management_sent},
    {"pacing_waits", "waits", CounterKind::count, "times that a QP waited for its pace",
     &CoreCounters::pacing_waits},
    {"tx_no_buffers", "bursts", CounterKind::count, "allocations of transmit buffers that came back short",
     &CoreCounters::tx_no_buffers},
    {"tx_ring_full", "bursts", CounterKind::count, "transmit bursts of which the port took a part",
     &CoreCounters::tx_ring_full},
    {"cq_overruns", "overruns", CounterKind::count, "completions lost because a completion queue was full",
     &CoreCounters::cq_overruns},
    {"fault_queue_full", "requests", CounterKind::count, "fault requests that found the fault queue full",
     &CoreCounters::fault_queue_full},
};
static_assert(sizeof(CoreCounters) == sizeof(CoreCounters::parse_errors) + sizeof(CoreCounters::drops) +
                                          std::size(kCoreCounterRows) * sizeof(uint64_t),
              "each member has a row");

/// A core's counters as one list: those of kCoreCounterRows, then the parse errors without `none`, then the
/// drops.
inline constexpr size_t kFlatCounters = std::size(kCoreCounterRows) +
                                        std::tuple_size_v<decltype(CoreCounters::parse_errors)> - 1 +
                                        std::tuple_size_v<decltype(CoreCounters::drops)>;
void flatten(const CoreCounters& counters, std::span<uint64_t, kFlatCounters> values);
/// Indices in that list; `error` is not `none`.
[[nodiscard]] constexpr size_t flat_index(wire::ParseError error) {
  return std::size(kCoreCounterRows) + static_cast<size_t>(error) - 1;
}
[[nodiscard]] constexpr size_t flat_index(DropReason reason) {
  return kFlatCounters - static_cast<size_t>(DropReason::count_) + static_cast<size_t>(reason);
}

}  // namespace faultline::transport
