// SPDX-License-Identifier: BSD-3-Clause
// A checked view of a received RoCEv2 frame. After `parse` succeeds every accessor is in bounds: all length
// arithmetic on received packets is done there, once, from the opcode table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "stack/wire/headers.hpp"

namespace faultline::wire {

/// Why a frame is not a RoCEv2 packet of ours to process: each is a drop counter.
enum class ParseError : uint8_t {
  none,
  runt,                   ///< shorter than the headers it announces
  not_ip,                 ///< another EtherType (the port's glue handles ARP and ND before)
  ip_header,              ///< wrong version, header length or options
  ip_checksum,
  ip_fragment,
  ip_length,              ///< IP total length against the frame
  not_udp,
  udp_port,
  udp_length,             ///< UDP length against the IP length
  udp_checksum,           ///< non-zero and wrong
  bth_version,
  unknown_opcode,
  header_length,          ///< too short for the opcode's extended headers and ICRC
  pad_count,              ///< pad longer than the payload, or not allowed for the opcode, or length not a multiple of 4
  payload_length,         ///< breaks the opcode's payload rule (the full-MTU rule is the QP's to check)
  icrc,
  count_
};
[[nodiscard]] std::string_view name_of(ParseError error);

/// What the port already verified for this frame.
enum RxChecks : uint8_t { kNothingVerified = 0, kIpChecksumVerified = 1U << 0, kUdpChecksumVerified = 1U << 1 };

/// Where a frame belongs before any deep look: three compares.
enum class FrameKind : uint8_t { roce, arp, ipv4_other, ipv6_other, other };
[[nodiscard]] FrameKind classify(std::span<const uint8_t> frame);

/// The view. It points into the frame; it lives as long as the frame does.
struct Packet {
  const uint8_t* frame = nullptr;
  const OpcodeInfo* info = nullptr;
  Bth bth;
  uint16_t ip_offset = 0;         ///< of the IP header in the frame
  uint16_t bth_offset = 0;
  uint16_t extended_offset = 0;   ///< of the first extended header
  uint16_t payload_offset = 0;
  uint16_t payload_bytes = 0;     ///< without pad and ICRC
  uint16_t icrc_offset = 0;       ///< = payload_offset + payload_bytes + pad
  bool ipv6 = false;
  uint8_t ecn = 0;                ///< the IP header's two ECN bits
  uint16_t vlan_tci = 0;          ///< 0 where untagged
  bool has_vlan = false;

  [[nodiscard]] std::span<const uint8_t> payload() const { return {frame + payload_offset, payload_bytes}; }
  [[nodiscard]] MacAddress source_mac() const;
  [[nodiscard]] Gid source_gid() const;
  [[nodiscard]] Gid destination_gid() const;
  [[nodiscard]] uint16_t udp_source_port() const;
  [[nodiscard]] uint8_t traffic_class() const;
  [[nodiscard]] uint8_t hop_limit() const;

  // Extended headers: call only where info->has(...) says so (asserted).
  [[nodiscard]] Reth reth() const;
  [[nodiscard]] Aeth aeth() const;
  [[nodiscard]] AtomicEth atomic_eth() const;
  [[nodiscard]] uint64_t atomic_ack() const;  ///< the original remote value
  [[nodiscard]] Deth deth() const;
  [[nodiscard]] uint32_t immediate() const;   ///< host order
  [[nodiscard]] uint32_t invalidate_rkey() const;
  [[nodiscard]] Feth feth() const;

  /// The 40 bytes that verbs put in front of a UD receive: the IPv6 header as it came, or for IPv4 20 undefined
  /// (zeroed) bytes and the IPv4 header (IBA A17.4.5.1, as Linux does).
  void write_grh(std::span<uint8_t, kGrhBytes> out) const;
};

/// Parses a frame (Ethernet to ICRC). Fills `packet` and returns none, or says why not. Does not verify the ICRC.
[[nodiscard]] ParseError parse(std::span<const uint8_t> frame, Packet& packet, uint8_t rx_checks = kNothingVerified);

/// Recomputes the ICRC of a parsed packet and compares.
[[nodiscard]] bool icrc_matches(const Packet& packet);

}  // namespace faultline::wire
