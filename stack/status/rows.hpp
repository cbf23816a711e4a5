// SPDX-License-Identifier: BSD-3-Clause
// What a process publishes of a device: one row for each object. Rows have no pointers, since another process
// reads them. All times are CLOCK_MONOTONIC.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace faultline::status {

/// Index of a row in its table.
using RowIndex = uint32_t;
/// An object that has no row: the table is full, or nothing is published.
inline constexpr RowIndex kNoRow = ~RowIndex{0};

/// What a QP waits for before it can send its next packet.
enum class WaitsFor : uint8_t {
  nothing,    ///< no work is posted
  turn,       ///< work is posted that the engine has not served yet
  answer,     ///< the peer's acknowledgement or response
  window,     ///< acknowledgements: the window is full
  credit,     ///< a receive of the peer, of which it sends credits
  receiver,   ///< a receive of the peer, which sent an RNR NAK
  peer_page,  ///< a page of the peer, which sent an RNR NAK
  page,       ///< a page of this process
  pace,       ///< the time at which congestion control permits the next packet
  count_
};

[[nodiscard]] constexpr std::string_view name_of(WaitsFor what) {
  constexpr std::string_view kNames[] = {"nothing",  "turn",      "answer", "window", "credit",
                                         "receiver", "peer page", "page",   "pace"};
  static_assert(std::size(kNames) == static_cast<size_t>(WaitsFor::count_));
  return what < WaitsFor::count_ ? kNames[static_cast<size_t>(what)] : "?";
}

/// Counters of one QP. Owner: its core's thread.
struct QpCounters {
  uint64_t tx_packets = 0;  ///< acknowledgements and retransmissions included
  uint64_t rx_packets = 0;  ///< that the QP accepted for processing
  uint64_t retransmitted_packets = 0;
  uint64_t timeouts = 0;
  uint64_t rnr_naks_received = 0;
  uint64_t sequence_naks_received = 0;
  uint64_t duplicate_requests = 0;
  uint64_t out_of_sequence = 0;
  uint64_t page_waits = 0;  ///< packets, or requests of this side, that had to wait for a page
  uint64_t sends_completed = 0;
};

struct QpCounterRow {
  std::string_view name;
  std::string_view help;
  uint64_t QpCounters::*member;
};
inline constexpr QpCounterRow kQpCounterRows[] = {
    {"tx_packets", "packets sent, acknowledgements and retransmissions included", &QpCounters::tx_packets},
    {"rx_packets", "packets received and given to the QP", &QpCounters::rx_packets},
    {"retransmitted_packets", "packets sent again", &QpCounters::retransmitted_packets},
    {"timeouts", "local ACK timeouts", &QpCounters::timeouts},
    {"rnr_naks_received", "RNR NAKs received", &QpCounters::rnr_naks_received},
    {"sequence_naks_received", "NAKs received that report a PSN sequence error",
     &QpCounters::sequence_naks_received},
    {"duplicate_requests", "requests received a second time", &QpCounters::duplicate_requests},
    {"out_of_sequence", "packets received behind a gap", &QpCounters::out_of_sequence},
    {"page_waits", "times that a packet or a request waited for a page", &QpCounters::page_waits},
    {"sends_completed", "send work requests completed, also with an error", &QpCounters::sends_completed},
};
static_assert(sizeof(QpCounters) == std::size(kQpCounterRows) * sizeof(uint64_t), "each member has a row");

/// The part of a QP's row that its core publishes.
struct QpLive {
  uint64_t updated_ns = 0;        ///< 0: not yet
  uint64_t round_trip_ns = 0;     ///< smoothed; 0: no sample yet
  uint64_t rate_bytes_per_s = 0;  ///< of congestion control; 0: no limit
  uint64_t wait_ends_ns = 0;      ///< latest end of the wait by a timer; 0: none
  QpCounters counters;
  std::array<uint8_t, 16> peer_gid{};  ///< zeros: not connected
  uint32_t peer_qpn = 0;
  uint32_t next_psn = 0;      ///< of the next packet to send
  uint32_t unacked_psn = 0;   ///< oldest PSN without an acknowledgement
  uint32_t expected_psn = 0;  ///< of the next request to receive
  uint32_t mtu_bytes = 0;
  uint32_t sends_posted = 0;       ///< send work requests that are not complete
  uint32_t receives_posted = 0;    ///< of the QP's own receive queue
  uint32_t in_flight_packets = 0;  ///< sent, and not acknowledged
  uint32_t window_packets = 0;     ///< most packets in flight
  uint32_t parked_packets = 0;     ///< received packets that wait for a page
  uint8_t state = 0;               ///< ibv_qp_state
  WaitsFor waits_for = WaitsFor::nothing;
  uint8_t retry_count = 0;  ///< attributes of ibv_modify_qp(3), and what is left of each
  uint8_t retries_left = 0;
  uint8_t rnr_retry = 0;
  uint8_t rnr_retries_left = 0;
  uint8_t timeout = 0;   ///< attribute of ibv_modify_qp(3): 4096 ns times 2^timeout
  uint8_t path_mtu = 0;  ///< ibv_mtu
};

struct QpRow {
  uint64_t created_ns = 0;
  uint32_t qpn = 0;
  uint32_t pd_handle = 0;
  uint32_t send_cq_handle = 0;
  uint32_t receive_cq_handle = 0;
  uint32_t srq_number = 0;  ///< 0: none
  uint16_t core = 0;
  uint8_t type = 0;  ///< ibv_qp_type
  uint8_t padding = 0;
  QpLive live;
};

/// Pages of a region; the first three have rdma-core's names (rdma-statistic(8)).
struct MrRow {
  uint64_t created_ns = 0;
  uint64_t address = 0;
  uint64_t length_bytes = 0;
  uint64_t iova = 0;
  uint64_t page_faults = 0;
  uint64_t page_invalidations = 0;
  uint64_t page_prefetch = 0;
  uint64_t resident_pages = 0;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  uint32_t access = 0;  ///< ibv_access_flags
  uint32_t pd_handle = 0;
};

struct CqRow {
  uint64_t created_ns = 0;
  uint32_t handle = 0;
  uint32_t entries = 0;
  uint32_t has_channel = 0;
  uint32_t padding = 0;
};

struct PdRow {
  uint64_t created_ns = 0;
  uint32_t handle = 0;
  uint32_t padding = 0;
};

struct SrqRow {
  uint64_t created_ns = 0;
  uint32_t number = 0;
  uint32_t pd_handle = 0;
  uint32_t cq_handle = 0;  ///< of an XRC SRQ; else 0
  uint32_t max_wr = 0;
};

/// A communication identifier of rdma_cm(7).
struct CmRow {
  uint64_t created_ns = 0;
  std::array<uint8_t, 32> source{};       ///< sockaddr_in or sockaddr_in6; zeros: none
  std::array<uint8_t, 32> destination{};  ///< likewise
  uint32_t id = 0;
  uint32_t qpn = 0;         ///< 0: none
  uint16_t port_space = 0;  ///< rdma_port_space
  uint8_t state = 0;        ///< rdma_cm_state of Linux's include/rdma/rdma_cm.h
  uint8_t qp_type = 0;      ///< ibv_qp_type
  uint32_t padding = 0;
};

/// State of the device as a whole.
struct DeviceRow {
  uint64_t updated_ns = 0;
  uint32_t link_up = 0;
  uint32_t padding = 0;
};

/// Describes a counter; the fields are those of verbs::CounterText, cut to their size.
struct CounterRow {
  std::array<char, 64> name{};
  std::array<char, 20> unit{};
  uint32_t kind = 0;  ///< CounterKind
  std::array<char, 168> help{};
};

}  // namespace faultline::status
