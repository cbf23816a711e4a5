// SPDX-License-Identifier: BSD-3-Clause
// What a device must speak beside RoCEv2 to live on an Ethernet link: ARP (RFC 826) and ICMP echo (RFC 792).
// Checked views and builders over bytes; who is asked and answered is the caller's to decide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stack/wire/headers.hpp"

namespace faultline::wire {

inline constexpr MacAddress kBroadcastMac{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
[[nodiscard]] constexpr bool is_multicast(const MacAddress& mac) {
  return (mac.bytes[0] & 1U) != 0;
}

/// Ethernet's shortest frame without its FCS (IEEE 802.3, 4A.4.2).
inline constexpr size_t kMinFrameBytes = 60;

enum class ArpOperation : uint16_t { request = 1, reply = 2 };

/// An ARP packet for IPv4 over Ethernet; addresses in host order.
struct ArpPacket {
  ArpOperation operation = ArpOperation::request;
  MacAddress sender_mac;
  uint32_t sender_ip = 0;
  MacAddress target_mac;
  uint32_t target_ip = 0;
};

/// False for anything that is not a whole ARP request or reply for IPv4 over Ethernet from a unicast sender.
[[nodiscard]] bool parse_arp(std::span<const uint8_t> frame, ArpPacket& packet);

/// Writes an ARP frame, padded to kMinFrameBytes, and returns its length; 0 where `frame` is too small.
[[nodiscard]] size_t build_arp(std::span<uint8_t> frame, const ArpPacket& packet,
                               const MacAddress& destination);

/// Turns an ICMP echo request for `own_ip` into the reply, in place, and returns the reply's length; 0 where
/// the frame is not a sound, unfragmented echo request from a unicast sender, which is then left as it was.
[[nodiscard]] size_t answer_echo(std::span<uint8_t> frame, const MacAddress& own_mac, uint32_t own_ip);

/// The largest path MTU (256..4096) whose data packets fit a port of this layer-3 MTU: IP, UDP, BTH, RETH and
/// ImmDt (the most that a packet with payload carries), payload, ICRC. 0 where not even 256 fits.
[[nodiscard]] uint32_t largest_path_mtu_bytes(uint32_t layer3_mtu_bytes, bool ipv6);

/// Where a port finds the headers whose checksums it is to fill in.
struct OffloadLayout {
  uint8_t layer2_bytes = 0;
  uint8_t layer3_bytes = 0;
  bool ipv6 = false;
};

/// Readies a RoCEv2 frame built by FrameTemplate for a port that computes checksums: finds the headers and,
/// with `udp`, puts the sum of the pseudo header in the UDP checksum (what NICs add the rest to). The frame
/// must be a whole UDP packet.
[[nodiscard]] OffloadLayout prepare_checksum_offload(std::span<uint8_t> frame, bool udp);

/// The Ethernet header of a frame that only loads a link: to nobody, of the EtherType for local experiments
/// (IEEE 802, 9.2.2).
void write_probe_header(std::span<uint8_t> frame, const MacAddress& source);

}  // namespace faultline::wire
