// SPDX-License-Identifier: BSD-3-Clause
// A checked view of a received RoCEv2 frame. After `parse` succeeds every accessor is in bounds. `parse` does
// all length arithmetic on received packets, from the opcode table.
#pragma once

#include <cassert>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/headers.hpp"
#include "stack/wire/packet/layout.hpp"

namespace faultline::wire {

/// Reasons why a frame is not a valid RoCEv2 packet; each is a drop counter.
enum class ParseError : uint8_t {
  none,
  runt,       ///< shorter than its headers
  not_ip,     ///< another EtherType (the port layer handles ARP and ND before)
  ip_header,  ///< wrong version, header length or options; IPv4-mapped addresses over IPv6
  ip_checksum,
  ip_fragment,
  ip_length,  ///< IP total length does not fit the frame
  not_udp,
  udp_port,
  udp_length,    ///< UDP length does not fit the IP length
  udp_checksum,  ///< non-zero and wrong
  bth_version,
  unknown_opcode,
  header_length,   ///< too short for the opcode's extended headers and ICRC
  pad_count,       ///< pad longer than payload or not allowed for the opcode, or length not a multiple of 4
  payload_length,  ///< violates the opcode's payload rule (the QP checks the full-MTU rule)
  icrc,
  identification,  ///< hidden by a socket, and not one that the source's packets lead to expect
  count_
};
[[nodiscard]] std::string_view name_of(ParseError error);

/// Checks that the port already made on this frame.
enum RxChecks : uint8_t {
  kNothingVerified = 0,
  kIpChecksumVerified = 1U << 0,
  kUdpChecksumVerified = 1U << 1
};
[[nodiscard]] constexpr uint32_t rx_checks(bool ip_verified, bool udp_verified) {
  return (ip_verified ? uint32_t{kIpChecksumVerified} : 0) |
         (udp_verified ? uint32_t{kUdpChecksumVerified} : 0);
}

/// Coarse kind of a frame, before parsing: three comparisons.
enum class FrameKind : uint8_t { roce, arp, ipv4_other, ipv6_other, other };
[[nodiscard]] FrameKind classify(std::span<const uint8_t> frame);

/// The view. It points into the frame and is valid as long as the frame is.
struct Packet {
  const uint8_t* frame = nullptr;
  const OpcodeInfo* info = nullptr;
  Bth bth;
  uint16_t ip_offset = 0;  ///< of the IP header in the frame
  uint16_t bth_offset = 0;
  uint16_t extended_offset = 0;  ///< of the first extended header
  uint16_t payload_offset = 0;
  uint16_t payload_bytes = 0;  ///< without pad and ICRC
  uint16_t icrc_offset = 0;    ///< = payload_offset + payload_bytes + pad
  bool ipv6 = false;
  uint8_t ecn = 0;        ///< the IP header's two ECN bits
  uint16_t vlan_tci = 0;  ///< 0 if untagged
  bool has_vlan = false;

  [[nodiscard]] std::span<const uint8_t> payload() const { return {frame + payload_offset, payload_bytes}; }
  [[nodiscard]] MacAddress source_mac() const;
  [[nodiscard]] MacAddress destination_mac() const;
  [[nodiscard]] Gid source_gid() const { return gid_at(ipv6 ? kIpv6SourceAt : kIpv4SourceAt); }
  [[nodiscard]] Gid destination_gid() const { return gid_at(ipv6 ? kIpv6DestinationAt : kIpv4DestinationAt); }
  /// True if the destination is 224.0.0.0/4 or ff00::/8.
  [[nodiscard]] bool is_multicast() const {
    return ipv6 ? destination_gid().is_multicast() : frame[ip_offset + kIpv4DestinationAt] >> 4 == 0xe;
  }
  /// True if the packet is from `source` to `destination`, which are of the same family.
  [[nodiscard]] bool is_ipv4_between(const Gid& source, const Gid& destination) const {
    const uint8_t* const addresses = frame + ip_offset + kIpv4SourceAt;
    return !ipv6 && load_be32(addresses) == source.ipv4() && load_be32(addresses + 4) == destination.ipv4();
  }
  [[nodiscard]] uint16_t udp_source_port() const { return load_be16(frame + bth_offset - kUdpBytes); }
  [[nodiscard]] uint8_t traffic_class() const;
  [[nodiscard]] uint8_t hop_limit() const { return frame[ip_offset + (ipv6 ? kIpv6HopLimitAt : kIpv4TtlAt)]; }
  [[nodiscard]] uint32_t flow_label() const;           ///< 0 over IPv4
  [[nodiscard]] uint16_t ipv4_identification() const;  ///< 0 over IPv6

  // Extended headers: call only if info->has(...) is true (asserted).
  [[nodiscard]] Reth reth() const {
    const uint8_t* at = header(kReth);
    return {.va = load_be64(at), .rkey = load_be32(at + 8), .length_bytes = load_be32(at + 12)};
  }
  [[nodiscard]] Aeth aeth() const {
    const uint32_t word = load_be32(header(kAeth));
    return {.syndrome = static_cast<uint8_t>(word >> 24), .msn = word & Psn::kMask};
  }
  [[nodiscard]] AtomicEth atomic_eth() const {
    const uint8_t* at = header(kAtomicEth);
    return {.va = load_be64(at),
            .rkey = load_be32(at + 8),
            .swap_or_add = load_be64(at + 12),
            .compare = load_be64(at + 20)};
  }
  /// The original remote value.
  [[nodiscard]] uint64_t atomic_ack() const { return load_be64(header(kAtomicAckEth)); }
  [[nodiscard]] Deth deth() const {
    const uint8_t* at = header(kDeth);
    return {.qkey = load_be32(at), .source_qpn = load_be32(at + 4) & kQpnMask};
  }
  /// Host order.
  [[nodiscard]] uint32_t immediate() const { return load_be32(header(kImmDt)); }
  [[nodiscard]] uint32_t invalidate_rkey() const { return load_be32(header(kIeth)); }
  /// SRQ number of an XRC request.
  [[nodiscard]] uint32_t xrc_srq_number() const { return load_be32(header(kXrcEth)) & kXrcSrqMask; }
  [[nodiscard]] SackEth sack_eth() const {
    const uint8_t* at = header(kSackEth);
    SackEth sack;
    for (size_t i = 0; i < sack.map.size(); ++i) sack.map[i] = load_be64(at + 8 * i);
    return sack;
  }
  [[nodiscard]] Feth feth() const {
    const uint32_t word = load_be32(header(kFeth));
    return {.placement_type = static_cast<uint8_t>(word & kFethPlacementMask),
            .selectivity = static_cast<uint8_t>(word >> kFethSelectivityShift & kFethSelectivityMask)};
  }

  /// Writes the 40 bytes that verbs put before the data of a UD receive (IBA A17.4.5.1, as Linux does). These
  /// are the received IPv6 header, or for IPv4 20 undefined (zeroed) bytes and the IPv4 header.
  void write_grh(std::span<uint8_t, kGrhBytes> out) const;

 private:
  [[nodiscard]] const uint8_t* header(ExtendedHeader which) const {
    assert(info->has(which));
    return frame + extended_offset + info->offset_of(which);
  }
  [[nodiscard]] Gid gid_at(uint32_t ip_header_offset) const {
    Gid gid;
    const uint8_t* address = frame + ip_offset + ip_header_offset;
    if (ipv6) {
      std::memcpy(gid.bytes.data(), address, gid.bytes.size());
    } else {
      gid.bytes[10] = gid.bytes[11] = 0xff;
      std::memcpy(gid.bytes.data() + 12, address, 4);
    }
    return gid;
  }
};

/// Parses a frame (Ethernet to ICRC). Fills `packet` and returns none, or returns the error. Does not verify
/// the ICRC.
[[nodiscard]] ParseError parse(std::span<const uint8_t> frame, Packet& packet,
                               uint8_t rx_checks = kNothingVerified);

/// Recomputes the ICRC of a parsed packet and compares it.
[[nodiscard]] bool icrc_matches(const Packet& packet);

/// The same in two steps, for callers that compute the payload's CRC themselves. The first returns the state
/// over everything before the payload. The second compares the state that includes the payload.
[[nodiscard]] uint32_t icrc_before_payload(const Packet& packet);
[[nodiscard]] bool icrc_matches(const Packet& packet, uint32_t state_with_payload);

/// True for a FLUSH with the ICRC that Linux's rxe computes. There the CRC continues over the BTH and the
/// rest a second time, unmasked, contrary to IBA A17.3.3.
[[nodiscard]] bool has_rxe_flush_icrc(const Packet& packet);

}  // namespace faultline::wire
