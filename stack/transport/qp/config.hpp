// SPDX-License-Identifier: BSD-3-Clause
// Configuration of a core. Defaults suit a virtual port.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "stack/transport/congestion/rate_control.hpp"

namespace faultline::record {
class RingWriter;
}

namespace faultline::transport {

/// Responder's action for a packet whose page is not resident.
enum class Stall : uint8_t {
  park,          ///< parks it until the page is resident; RNR NAK only if there is no room
  rnr,           ///< RNR NAK at once
  park_then_rnr  ///< parks it until a deadline, then RNR NAK
};

/// Number of QPNs in one generation. The low bits of a QPN are the table index and the high bits a
/// generation. A stale packet thus does not reach the next QP of the slot.
inline constexpr uint32_t kQpnBlock = 1U << 16;

struct CoreConfig {
  CongestionConfig congestion;
  uint32_t window_packets = 256;       ///< unacknowledged request packets a QP may have in flight
  uint32_t ack_every_packets = 64;     ///< interval of AckReq inside a long message, in packets
  uint32_t park_packets_per_qp = 256;  ///< received packets parked for a page fault
  uint32_t park_packets_total = 1024;
  Stall stall = Stall::park_then_rnr;
  uint64_t park_deadline_ns = 2'000'000;    ///< of a parked request; at the deadline one RNR NAK is sent
  uint64_t answer_deadline_ns = 2'000'000;  ///< of a READ response; likewise
  /// Deadline of parked UC and UD packets. It is longer, since no NAK can cause a retransmission.
  uint64_t unreliable_deadline_ns = 1'000'000'000;
  uint8_t fault_rnr_timer = 1;  ///< RNR timer code sent for a fault: 1 = 10 us
  uint32_t max_qps = 65'536;    ///< of all cores of the device together
  /// Range of QPNs to allocate: the whole QPN space, or this process's part if several processes share an
  /// address. The range consists of whole blocks of kQpnBlock; `last_qpn` is the last QPN of its block.
  uint32_t first_qpn = kQpnBlock;
  uint32_t last_qpn = 0xff * kQpnBlock - 1;
  /// Selects the first block to use. It differs each time that a process starts, since a peer may still have
  /// connections to QPs of the previous process (IBA 12.9.8.3.1).
  uint32_t qpn_seed = 0;
  /// Memory for QPs and their rings; only the core's thread uses it. With many QPs, the lines that a message
  /// touches are rarely cached. Huge pages at least keep the page tables for these addresses in the caches.
  std::pmr::memory_resource* qp_memory = std::pmr::new_delete_resource();
  record::RingWriter* recorder = nullptr;  ///< of the core alone; nullptr: nothing is recorded
  bool reports_drops = false;              ///< EventSink::on_frame_dropped is called
  uint32_t max_path_mtu_bytes = 4096;      ///< largest MTU of the port
  /// Number of cores of the device and the index of this one. The QPN determines the owner of a QP
  /// (owner_of).
  uint32_t core_count = 1;
  uint32_t core_index = 0;
  /// Announces selective acknowledgements to peers, and sends them to peers that announce them.
  bool selective_ack = true;
  uint32_t reorder_packets_per_qp = 256;       ///< received packets held after a gap; with selective_ack
  uint64_t reorder_deadline_ns = 100'000'000;  ///< at the deadline they are dropped: the requester is gone
  /// Retransmits the oldest packet after a delay derived from the measured round trip, before the ACK timeout
  /// of the attributes.
  bool early_probe = true;
  /// A QP with an ACK timeout waits at least this long for an answer. Programs mostly fix the attribute, and
  /// on a busy machine a peer may have no processor for longer.
  uint64_t min_ack_timeout_ns = 0;
  /// Sends credits (posted receives) to requesters and obeys those of responders (IBA 9.7.7.2).
  bool credits = true;
  /// Accepts FLUSH packets with the ICRC of Linux's rxe (wire::has_rxe_flush_icrc) in addition to the
  /// specification's ICRC. Sends rxe's form, since rxe accepts no other.
  bool rxe_flush_icrc = false;
  uint8_t wire_checksums = 1;  ///< wire::Checksums bits the core computes itself
  /// False: received ICRCs are not verified; for peers with wire::Checksums::no_icrc.
  bool verify_icrc = true;
};

}  // namespace faultline::transport
