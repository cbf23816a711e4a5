// SPDX-License-Identifier: BSD-3-Clause
// What a device must speak beside RoCEv2 to live on an Ethernet link: ARP (RFC 826), ICMP echo (RFC 792, RFC
// 4443), IPv6 neighbour discovery (RFC 4861), each with or without a VLAN tag. Checked views and builders
// over bytes; who is asked and answered is the caller's to decide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stack/wire/packet/headers.hpp"

namespace faultline::wire {

inline constexpr MacAddress kBroadcastMac{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
[[nodiscard]] constexpr bool is_multicast(const MacAddress& mac) {
  return (mac.bytes[0] & 1U) != 0;
}

/// Ethernet's shortest frame without its FCS (IEEE 802.3, 4A.4.2).
inline constexpr size_t kMinFrameBytes = 60;
/// The longest frame that a builder here writes: a neighbour message with a VLAN tag and its option.
inline constexpr size_t kMaxLinkFrameBytes = 96;

/// IEEE 802.1Q: the tag of a device's own frames. Priority in the top three bits, VLAN id in the low twelve.
struct VlanTag {
  bool present = false;
  uint16_t tci = 0;
};
inline constexpr uint16_t kVlanIdMask = 0xfff;
[[nodiscard]] constexpr uint16_t vlan_tci(uint16_t vlan_id, uint8_t priority) {
  return static_cast<uint16_t>((priority & 7U) << 13 | (vlan_id & kVlanIdMask));
}

/// The Ethernet header of a frame of the device's own.
struct LinkHeader {
  MacAddress source;
  MacAddress destination;
  VlanTag vlan;
};

// ---- addresses ----

/// 224.0.0.0/4 or ff00::/8.
[[nodiscard]] bool is_multicast(const Gid& gid);
/// fe80::/10.
[[nodiscard]] bool is_link_local(const Gid& gid);
/// The Ethernet group address of a multicast group (RFC 1112, 6.4; RFC 2464, 7).
[[nodiscard]] MacAddress multicast_mac(const Gid& group);
/// ff02::1:ffXX:XXXX, where a solicitation for an IPv6 address goes (RFC 4291, 2.7.1).
[[nodiscard]] Gid solicited_node_group(const Gid& target);
/// The modified EUI-64 of a MAC address: also the GUID of a RoCE device.
[[nodiscard]] uint64_t eui64(const MacAddress& mac);
/// fe80::/64 with the modified EUI-64 of the MAC address (RFC 4291, appendix A).
[[nodiscard]] Gid link_local_gid(const MacAddress& mac);

// ---- ARP ----

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

/// Writes an ARP frame from the packet's sender, padded to kMinFrameBytes, and returns its length; 0 where
/// `frame` is too small.
[[nodiscard]] size_t build_arp(std::span<uint8_t> frame, const ArpPacket& packet,
                               const MacAddress& destination, const VlanTag& vlan = {});

// ---- neighbour discovery ----

enum class NeighbourMessageKind : uint8_t { solicitation = 135, advertisement = 136 };

struct NeighbourMessage {
  NeighbourMessageKind kind = NeighbourMessageKind::solicitation;
  MacAddress sender_mac;  ///< of the frame it came in
  Gid source;
  Gid destination;
  Gid target;
  /// The source's (solicitation) or target's (advertisement) link-layer address option.
  bool has_link_address = false;
  MacAddress link_address;
  // Of an advertisement (RFC 4861, 4.4).
  bool router = false;
  bool solicited = false;
  bool override_known = false;
};

/// False for anything that RFC 4861, 7.1.1 and 7.1.2 tell a node to discard: hop limit below 255, wrong
/// checksum or code, short, an option of length zero or beyond the end, a multicast target; and for link
/// addresses that are no unicast MAC addresses.
[[nodiscard]] bool parse_neighbour_message(std::span<const uint8_t> frame, NeighbourMessage& message);

/// Writes the message and returns the frame's length, at most kMaxLinkFrameBytes; 0 where `frame` is too
/// small.
[[nodiscard]] size_t build_neighbour_message(std::span<uint8_t> frame, const NeighbourMessage& message,
                                             const LinkHeader& link);

// ---- echo ----

/// Turns an ICMP or ICMPv6 echo request for one of `own` into the reply, in place and with the tag it came
/// with, and returns the reply's length; 0 where the frame is not a sound, unfragmented echo request from a
/// unicast sender, which is then left as it was.
[[nodiscard]] size_t answer_echo(std::span<uint8_t> frame, const MacAddress& own_mac,
                                 std::span<const Gid> own);

// ---- the port ----

/// The largest path MTU (256..4096) whose data packets fit a port of this layer-3 MTU: IP, UDP, BTH, XRCETH,
/// RETH and ImmDt (the most that a packet with payload carries), payload, ICRC. 0 where not even 256 fits.
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
