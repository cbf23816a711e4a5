// SPDX-License-Identifier: BSD-3-Clause
// The counters of a device's port.
#pragma once

#include <cstdint>
#include <iterator>

#include "stack/base/counter_row.hpp"

namespace faultline::verbs {

/// `Number` is uint64_t in a snapshot, and a single-writer cell in the live counters. kPortCounterRows
/// describes each member.
template <typename Number>
struct BasicPortCounters {
  Number rx_frames{};
  Number tx_frames{};
  Number rx_missed{};
  Number rx_no_mbuf{};
  Number arp_in{};
  Number arp_out{};
  Number icmp_in{};
  Number icmp_out{};
  Number other_dropped{};
  Number loopback_frames{};
  Number linearized_frames{};
  Number tx_dropped{};
  Number tx_too_long{};
  Number tx_unreachable{};
  Number peer_violations{};
  Number nd_in{};
  Number nd_out{};
  Number wrong_vlan{};
  Number wrong_address{};
  Number handed_over{};
  Number hand_over_dropped{};
  Number nic_resets{};
  Number capture_missed{};
  Number chaos_lost{};
  Number chaos_duplicated{};
  Number chaos_corrupted{};
  Number chaos_delayed{};
  Number chaos_marked{};
};
using PortCounters = BasicPortCounters<uint64_t>;

template <typename Number>
inline constexpr CounterRow<BasicPortCounters<Number>, Number> kPortCounterRows[] = {
    {"rx_frames", "frames", CounterKind::count, "frames that the port received",
     &BasicPortCounters<Number>::rx_frames},
    {"tx_frames", "frames", CounterKind::count, "frames that the port sent",
     &BasicPortCounters<Number>::tx_frames},
    {"rx_missed", "frames", CounterKind::count, "frames lost because the port had no room",
     &BasicPortCounters<Number>::rx_missed},
    {"rx_no_mbuf", "frames", CounterKind::count, "frames lost because the pool had no buffer",
     &BasicPortCounters<Number>::rx_no_mbuf},
    {"arp_in", "frames", CounterKind::count, "ARP frames received", &BasicPortCounters<Number>::arp_in},
    {"arp_out", "frames", CounterKind::count, "ARP frames sent", &BasicPortCounters<Number>::arp_out},
    {"icmp_in", "frames", CounterKind::count, "ICMP and ICMPv6 echo frames received",
     &BasicPortCounters<Number>::icmp_in},
    {"icmp_out", "frames", CounterKind::count, "ICMP and ICMPv6 echo frames sent",
     &BasicPortCounters<Number>::icmp_out},
    {"other_dropped", "frames", CounterKind::count, "frames of protocols that the device does not speak",
     &BasicPortCounters<Number>::other_dropped},
    {"loopback_frames", "frames", CounterKind::count, "frames that the device sent to itself",
     &BasicPortCounters<Number>::loopback_frames},
    {"linearized_frames", "frames", CounterKind::count, "received frames in several buffers, copied into one",
     &BasicPortCounters<Number>::linearized_frames},
    {"tx_dropped", "frames", CounterKind::count, "frames dropped because the port sends nothing",
     &BasicPortCounters<Number>::tx_dropped},
    {"tx_too_long", "frames", CounterKind::count, "frames that were longer than the path to their peer holds",
     &BasicPortCounters<Number>::tx_too_long},
    {"tx_unreachable", "reports", CounterKind::count,
     "ICMP messages which report that a frame reached no socket of its peer",
     &BasicPortCounters<Number>::tx_unreachable},
    {"peer_violations", "links", CounterKind::count,
     "links that ended because the peer broke the protocol of their shared memory",
     &BasicPortCounters<Number>::peer_violations},
    {"nd_in", "frames", CounterKind::count, "neighbour discovery frames received",
     &BasicPortCounters<Number>::nd_in},
    {"nd_out", "frames", CounterKind::count, "neighbour discovery frames sent",
     &BasicPortCounters<Number>::nd_out},
    {"wrong_vlan", "frames", CounterKind::count, "frames with the tag of another VLAN, or without one",
     &BasicPortCounters<Number>::wrong_vlan},
    {"wrong_address", "frames", CounterKind::count, "frames for another MAC or IP address",
     &BasicPortCounters<Number>::wrong_address},
    {"handed_over", "frames", CounterKind::count, "frames handed to the core that owns their QP",
     &BasicPortCounters<Number>::handed_over},
    {"hand_over_dropped", "frames", CounterKind::count, "frames lost because the ring to that core was full",
     &BasicPortCounters<Number>::hand_over_dropped},
    {"nic_resets", "resets", CounterKind::count, "resets of the NIC that its PMD asked for",
     &BasicPortCounters<Number>::nic_resets},
    {"capture_missed", "frames", CounterKind::count,
     "frames that the capture lacks, since its writer did not keep up",
     &BasicPortCounters<Number>::capture_missed},
    {"chaos_lost", "frames", CounterKind::count, "frames that [device.chaos] lost",
     &BasicPortCounters<Number>::chaos_lost},
    {"chaos_duplicated", "frames", CounterKind::count, "frames that [device.chaos] duplicated",
     &BasicPortCounters<Number>::chaos_duplicated},
    {"chaos_corrupted", "frames", CounterKind::count, "frames that [device.chaos] corrupted",
     &BasicPortCounters<Number>::chaos_corrupted},
    {"chaos_delayed", "frames", CounterKind::count, "frames that [device.chaos] delayed",
     &BasicPortCounters<Number>::chaos_delayed},
    {"chaos_marked", "frames", CounterKind::count, "frames that [device.chaos] marked with CE",
     &BasicPortCounters<Number>::chaos_marked},
};
static_assert(sizeof(PortCounters) == std::size(kPortCounterRows<uint64_t>) * sizeof(uint64_t),
              "each member has a row");

}  // namespace faultline::verbs
