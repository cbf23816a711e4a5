// SPDX-License-Identifier: BSD-3-Clause
// Offsets of the fields of Ethernet, IP, UDP and the BTH, and their fixed values. Used by stack/wire only.
#pragma once

#include <cstdint>

namespace faultline::wire {

inline constexpr uint32_t kEthernetBytes = 14;
inline constexpr uint32_t kVlanTagBytes = 4;
inline constexpr uint32_t kIpv4Bytes = 20;  ///< without options, which RoCEv2 senders do not use
inline constexpr uint32_t kIpv6Bytes = 40;
inline constexpr uint32_t kUdpBytes = 8;
inline constexpr uint32_t kBthBytes = 12;

inline constexpr uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr uint16_t kEtherTypeArp = 0x0806;
inline constexpr uint16_t kEtherTypeVlan = 0x8100;
inline constexpr uint16_t kEtherTypeIpv6 = 0x86dd;
inline constexpr uint8_t kProtocolUdp = 17;

// IPv4 (RFC 791).
inline constexpr uint8_t kIpv4VersionAndLength = 0x45;
inline constexpr uint32_t kIpv4TosAt = 1;
inline constexpr uint32_t kIpv4TotalLengthAt = 2;
inline constexpr uint32_t kIpv4IdentificationAt = 4;
inline constexpr uint32_t kIpv4FragmentAt = 6;
inline constexpr uint16_t kIpv4DontFragment = 0x4000;
inline constexpr uint16_t kIpv4FragmentMask = 0x3fff;  ///< more-fragments and the offset
inline constexpr uint32_t kIpv4TtlAt = 8;
inline constexpr uint32_t kIpv4ProtocolAt = 9;
inline constexpr uint32_t kIpv4ChecksumAt = 10;
inline constexpr uint32_t kIpv4SourceAt = 12;
inline constexpr uint32_t kIpv4DestinationAt = 16;

// IPv6 (RFC 8200).
inline constexpr uint32_t kIpv6FlowLabelMask = 0xfffffU;
inline constexpr uint32_t kIpv6PayloadLengthAt = 4;
inline constexpr uint32_t kIpv6NextHeaderAt = 6;
inline constexpr uint32_t kIpv6HopLimitAt = 7;
inline constexpr uint32_t kIpv6SourceAt = 8;
inline constexpr uint32_t kIpv6DestinationAt = 24;

// UDP (RFC 768).
inline constexpr uint32_t kUdpDestinationPortAt = 2;
inline constexpr uint32_t kUdpLengthAt = 4;
inline constexpr uint32_t kUdpChecksumAt = 6;

// BTH (IBA vol. 1, 9.2): three words. 0: opcode, flags, P_Key. 1: FECN, BECN, reserved, destination QPN.
// 2: AckReq, reserved, PSN. bth_bytes.hpp has them as a value.
inline constexpr uint32_t kBthReservedAt = 4;  ///< the byte that holds FECN, BECN and six reserved bits

// FETH (IBA A19): one word, placement type in bits 0..3, selectivity in 4 and 5, the rest reserved.
inline constexpr uint32_t kFethPlacementMask = 0xf;
inline constexpr uint32_t kFethSelectivityShift = 4;
inline constexpr uint32_t kFethSelectivityMask = 0x3;

}  // namespace faultline::wire
