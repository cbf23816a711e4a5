// SPDX-License-Identifier: BSD-3-Clause
// Why a QP failed, or why packets were dropped that a peer misses: a cause with a number, which error
// completions carry as vendor_err, and the facts of the moment.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace faultline::status {

/// Values are vendor_err of a completion (ibv_poll_cq(3)) and never change; docs/seeing/failures.md lists
/// them.
enum class FailureCause : uint16_t {
  none = 0,

  // The QP's own requests.
  never_answered = 1,
  stopped_answering = 2,
  link_down = 3,
  receiver_not_ready = 4,
  peer_refused_access = 5,
  peer_refused_request = 6,
  peer_failed = 7,
  bad_response = 8,
  acknowledges_nothing = 9,

  // The program's own work requests and memory.
  local_length = 16,
  local_operation = 17,
  local_key = 18,
  local_domain = 19,
  local_range = 20,
  local_right = 21,
  local_page = 22,
  window_bind = 23,
  cq_overrun = 24,

  // A request of the peer that was refused.
  refused_key = 32,
  refused_domain = 33,
  refused_range = 34,
  refused_right = 35,
  refused_window = 36,
  refused_page = 37,
  function_disabled = 38,
  malformed_request = 39,
  receive_too_short = 40,
  too_many_reads = 41,
  misaligned_atomic = 42,
  no_shared_queue = 43,
  bad_invalidate = 44,
  receive_memory = 45,

  // Not caused by a packet.
  flushed = 48,
  device_lost = 49,
  by_scenario = 50,

  // Connections and addresses: no QP has failed yet.
  connection_rejected = 56,
  connection_timeout = 57,
  no_route = 58,
  no_neighbour = 59,

  // Packets were dropped here; their sender retransmits until it fails.
  dropped_unknown_qpn = 64,
  dropped_wrong_service = 65,
  dropped_qp_state = 66,
  dropped_pkey = 67,
  dropped_qkey = 68,
  dropped_source = 69,
  dropped_destination = 70,
  dropped_mtu = 71,
  dropped_length = 72,
  dropped_no_receive = 73,
  dropped_too_long = 74,
  dropped_access = 75,
  dropped_icrc = 76,
  dropped_stale = 77
};

struct FailureCauseRow {
  FailureCause cause;
  std::string_view name;   ///< a stable word, for scripts
  std::string_view text;   ///< what happened: a phrase without a full stop
  std::string_view check;  ///< what to look at, likewise
};
/// All rows, in the order of their numbers.
[[nodiscard]] std::span<const FailureCauseRow> failure_causes();
/// Returns the row of a cause; that of `none` for an unknown number.
[[nodiscard]] const FailureCauseRow& row_of(FailureCause cause);

/// What ARP (RFC 826) or IPv6 neighbour discovery (RFC 4861) knows of the next hop.
enum class Neighbour : uint8_t { unknown, unanswered, reachable };

/// Facts at the moment of a failure. A field without meaning for the cause is 0.
struct FailureRecord {
  uint64_t time_ns = 0;         ///< CLOCK_MONOTONIC
  uint64_t count = 0;           ///< packets, of a cause dropped_*; else 1
  uint64_t remote_va = 0;       ///< address of the request in the peer's memory
  uint64_t refused_va = 0;      ///< address of the access that was refused
  uint64_t ack_timeout_ns = 0;  ///< 0: none
  uint64_t silent_ns = 0;       ///< since the peer's last answer
  uint64_t awaited_va = 0;      ///< page for which the QP waited
  uint64_t awaited_ns = 0;      ///< duration of that wait; 0: none
  uint64_t local_va = 0;        ///< first buffer of the request
  std::array<uint8_t, 16> peer_gid{};
  uint32_t qpn = 0;  ///< 0: no QP
  uint32_t peer_qpn = 0;
  uint32_t psn = 0;           ///< oldest PSN not acknowledged, or that of the refused request
  uint32_t key = 0;           ///< rkey of the request
  uint32_t length_bytes = 0;  ///< of the request
  uint32_t refused_key = 0;   ///< rkey (`nak_sent`) or lkey of the access that was refused
  uint32_t refused_length_bytes = 0;
  uint32_t awaited_key = 0;  ///< rkey (`nak_sent`) or lkey of the awaited page
  uint32_t lkey = 0;         ///< of the request's first buffer; 0: none
  uint32_t unanswered_packets = 0;
  uint32_t rx_packets = 0;  ///< that the QP has received, modulo 2^32
  FailureCause cause = FailureCause::none;
  uint8_t status = 0;  ///< ibv_wc_status of the failed work request
  uint8_t opcode = 0;  ///< transport::SendOpcode of the request
  /// Of the NAK sent (`nak_sent`) or received (IBA 9.7.5.2.8), or the reason of a REJ (IBA 12.6.7.2).
  uint8_t syndrome = 0;
  uint8_t retry_count = 0;
  uint8_t rnr_retry = 0;
  uint8_t retries_used = 0;
  uint8_t rnr_retries_used = 0;
  uint8_t qp_type = 0;  ///< ibv_qp_type
  bool has_request = false;
  bool is_connected = false;
  bool is_loopback = false;  ///< the peer's address is the device's own
  bool nak_sent = false;
  bool link_up = false;
  Neighbour neighbour = Neighbour::unknown;  ///< the next hop to the peer
  std::array<uint8_t, 6> neighbour_mac{};    ///< if it is reachable
  std::array<uint8_t, 2> padding{};
};
static_assert(sizeof(FailureRecord) % sizeof(uint64_t) == 0);

}  // namespace faultline::status
