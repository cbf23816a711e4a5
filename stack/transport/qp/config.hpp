// SPDX-License-Identifier: BSD-3-Clause
// What a core can be told. Defaults suit a virtual port.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "stack/transport/congestion/rate_control.hpp"

namespace faultline::transport {

/// What a responder does with a packet whose page is not there.
enum class Stall : uint8_t {
  park,          ///< keeps it until the page comes; RNR NAK only where there is no room
  rnr,           ///< RNR NAK at once
  park_then_rnr  ///< keeps it for a while first
};

/// A QPN is a table's index below a generation, so that a stale packet does not reach the QP that follows in
/// the slot: this many have one generation.
inline constexpr uint32_t kQpnBlock = 1U << 16;

struct CoreConfig {
  CongestionConfig congestion;
  uint32_t window_packets = 256;       ///< unacknowledged request packets a QP may have in flight
  uint32_t ack_every_packets = 64;     ///< AckReq inside a long message every so many packets
  uint32_t park_packets_per_qp = 256;  ///< received packets held while their page comes
  uint32_t park_packets_total = 1024;
  Stall stall = Stall::park_then_rnr;
  uint64_t park_deadline_ns = 2'000'000;    ///< of a parked request; then one RNR NAK
  uint64_t answer_deadline_ns = 2'000'000;  ///< of a READ's answer; likewise
  /// Of what UC and UD carry: longer, since there is no NAK by which it would come again.
  uint64_t unreliable_deadline_ns = 1'000'000'000;
  uint8_t fault_rnr_timer = 1;  ///< RNR timer code sent for a fault: 1 = 10 us
  uint32_t max_qps = 65'536;    ///< of all the device's cores together
  /// The QPNs to give out: of all there are, or of processes that share an address each its own. Whole
  /// multiples of kQpnBlock, `last_qpn` the last of its block.
  uint32_t first_qpn = kQpnBlock;
  uint32_t last_qpn = 0xff * kQpnBlock - 1;
  /// Which block of them is the first: another one each time that a process starts, so that a peer does not
  /// take its QPs for those of the one before, of which it may still have connections (IBA 12.9.8.3.1).
  uint32_t qpn_seed = 0;
  /// Where QPs and their rings lie; the core's thread alone uses it. Of many QPs each message finds others in
  /// the caches: with huge pages the tables that translate their addresses, at least, are found there.
  std::pmr::memory_resource* qp_memory = std::pmr::new_delete_resource();
  uint32_t max_path_mtu_bytes = 4096;  ///< what the port carries
  /// Cores of the device, and which of them this one is: the owner of a QP follows from its number
  /// (owner_of).
  uint32_t core_count = 1;
  uint32_t core_index = 0;
  /// Say to peers that selective acknowledgements are understood, and send them to peers that say so.
  bool selective_ack = true;
  uint32_t reorder_packets_per_qp = 256;       ///< received packets held behind a gap; with selective_ack
  uint64_t reorder_deadline_ns = 100'000'000;  ///< then they are given up: their requester is gone
  bool early_probe = true;  ///< ask again by the round trip's measure, before the time-out of the attributes
  /// Tell requesters how many receives are posted, and heed what responders tell (IBA 9.7.7.2).
  bool credits = true;
  /// FLUSH with the ICRC of Linux's rxe (wire::has_rxe_flush_icrc): taken beside the specification's, and
  /// sent, since rxe takes no other.
  bool rxe_flush_icrc = false;
  uint8_t wire_checksums = 1;  ///< wire::Checksums bits the core computes itself
  /// False: no packet's ICRC is looked at, to go with wire::Checksums::no_icrc at the peer.
  bool verify_icrc = true;
};

}  // namespace faultline::transport
