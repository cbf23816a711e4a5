// SPDX-License-Identifier: BSD-3-Clause
// Protocols besides RoCEv2 that a device needs on an Ethernet link, each with or without a VLAN tag: ARP (RFC
// 826), ICMP echo (RFC 792, RFC 4443), IPv6 neighbour discovery (RFC 4861). Provides checked views and
// builders over bytes; the caller decides which addresses to resolve and answer.
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

/// Minimum Ethernet frame size without FCS (IEEE 802.3, 4A.4.2).
inline constexpr size_t kMinFrameBytes = 60;
/// Longest frame that a builder here writes: a neighbour message with a VLAN tag and its option.
inline constexpr size_t kMaxLinkFrameBytes = 96;

/// IEEE 802.1Q tag of frames that the device sends. Priority in the top three bits, VLAN id in the low
/// twelve.
struct VlanTag {
  bool present = false;
  uint16_t tci = 0;
};
inline constexpr uint16_t kVlanIdMask = 0xfff;
[[nodiscard]] constexpr uint16_t vlan_tci(uint16_t vlan_id, uint8_t priority) {
  return static_cast<uint16_t>((priority & 7U) << 13 | (vlan_id & kVlanIdMask));
}

/// Ethernet header of a frame that the device sends.
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
/// Returns the Ethernet group address of a multicast group (RFC 1112, 6.4; RFC 2464, 7).
[[nodiscard]] MacAddress multicast_mac(const Gid& group);
/// Returns ff02::1:ffXX:XXXX, the destination of a solicitation for an IPv6 address (RFC 4291, 2.7.1).
[[nodiscard]] Gid solicited_node_group(const Gid& target);
/// Returns the modified EUI-64 of a MAC address, which is also the GUID of a RoCE device.
[[nodiscard]] uint64_t eui64(const MacAddress& mac);
/// Returns fe80::/64 with the modified EUI-64 of the MAC address (RFC 4291, appendix A).
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

/// Parses a frame. False unless it is a complete ARP request or reply for IPv4 over Ethernet from a unicast
/// sender.
[[nodiscard]] bool parse_arp(std::span<const uint8_t> frame, ArpPacket& packet);

/// Writes an ARP frame from the packet's sender, padded to kMinFrameBytes, and returns its length; 0 if
/// `frame` is too small.
[[nodiscard]] size_t build_arp(std::span<uint8_t> frame, const ArpPacket& packet,
                               const MacAddress& destination, const VlanTag& vlan = {});

// ---- neighbour discovery ----

enum class NeighbourMessageKind : uint8_t { solicitation = 135, advertisement = 136 };

struct NeighbourMessage {
  NeighbourMessageKind kind = NeighbourMessageKind::solicitation;
  MacAddress sender_mac;  ///< source of the frame
  Gid source;
  Gid destination;
  Gid target;
  /// Link-layer address option of the source (solicitation) or the target (advertisement).
  bool has_link_address = false;
  MacAddress link_address;
  // Of an advertisement (RFC 4861, 4.4).
  bool router = false;
  bool solicited = false;
  bool override_known = false;
};

/// Parses a frame. False for messages that RFC 4861, 7.1.1 and 7.1.2 require a node to discard: hop limit
/// below 255, wrong checksum or code, short, an option of length zero or beyond the end, a multicast target.
/// Also false for link addresses that are not unicast MAC addresses.
[[nodiscard]] bool parse_neighbour_message(std::span<const uint8_t> frame, NeighbourMessage& message);

/// Writes the message and returns the frame's length, at most kMaxLinkFrameBytes; 0 if `frame` is too small.
[[nodiscard]] size_t build_neighbour_message(std::span<uint8_t> frame, const NeighbourMessage& message,
                                             const LinkHeader& link);

// ---- echo ----

/// Turns an ICMP or ICMPv6 echo request for one of `own` into the reply, in place and with the same tag.
/// Returns the reply's length. Returns 0 and leaves the frame unchanged if it is not a valid, unfragmented
/// echo request from a unicast sender.
[[nodiscard]] size_t answer_echo(std::span<uint8_t> frame, const MacAddress& own_mac,
                                 std::span<const Gid> own);

// ---- the port ----

/// Returns the largest path MTU (256..4096) whose data packets fit a port of this layer-3 MTU; 0 if not even
/// 256 fits. The overhead is IP, UDP, BTH, XRCETH, RETH, ImmDt and ICRC, the most that a packet with payload
/// carries.
[[nodiscard]] uint32_t largest_path_mtu_bytes(uint32_t layer3_mtu_bytes, bool ipv6);

/// Position of the headers whose checksums the port fills in.
struct OffloadLayout {
  uint8_t layer2_bytes = 0;
  uint8_t layer3_bytes = 0;
  bool ipv6 = false;
};

/// Checksums that a port computes.
struct OffloadedChecksums {
  bool ipv4 = false;
  bool udp = false;
};

/// Prepares a RoCEv2 frame built by FrameTemplate for a port that computes checksums. Returns the header
/// positions. With `port.ipv4`, clears the IPv4 header checksum; without it the frame's own stays. With
/// `port.udp`, writes the pseudo-header sum to the UDP checksum (NICs add the rest). The frame must be a
/// complete UDP packet.
[[nodiscard]] OffloadLayout prepare_checksum_offload(std::span<uint8_t> frame, OffloadedChecksums port);

/// Writes the Ethernet header of a frame that only loads a link: an unused destination and the EtherType for
/// local experiments (IEEE 802, 9.2.2).
void write_probe_header(std::span<uint8_t> frame, const MacAddress& source);

}  // namespace faultline::wire
