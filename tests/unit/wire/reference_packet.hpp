// SPDX-License-Identifier: BSD-3-Clause
// RoCEv2 frames built the plain way: byte by byte, CRC bit by bit, checksums word by word. The fast code of
// stack/wire is compared with it. It also builds packets that stack/wire would never build.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stack/wire/packet/frame.hpp"
#include "tests/unit/wire/capture.hpp"

namespace faultline::wire::test {

[[nodiscard]] uint32_t plain_crc32(std::span<const uint8_t> bytes);

/// Returns the checksum of RFC 1071 over 16-bit words, inverted. It is 0 for correct data that include their
/// checksum.
[[nodiscard]] uint16_t plain_checksum(std::span<const uint8_t> bytes);

/// Returns the UDP checksum of the datagram at the end of the IP packet, with its checksum field as it is.
[[nodiscard]] uint16_t plain_udp_checksum(std::span<const uint8_t> ip_packet, bool ipv6);

[[nodiscard]] uint32_t plain_icrc(std::span<const uint8_t> ip_packet_without_icrc, bool ipv6);

/// Puts Ethernet, IP and UDP headers before `transport` (BTH to the end of the pad) and the ICRC after it;
/// `icrc_xor` corrupts the ICRC.
[[nodiscard]] Frame plain_frame(const PathHeader& path, std::span<const uint8_t> transport,
                                uint16_t ipv4_identification = 0, uint32_t icrc_xor = 0);

/// Returns BTH, extended headers, payload and pad for a packet's meaning.
[[nodiscard]] std::vector<uint8_t> plain_transport(const PacketFields& fields,
                                                   std::span<const uint8_t> payload);

/// Paths for tests: documentation addresses, every field different from its default.
[[nodiscard]] PathHeader ipv4_path();
[[nodiscard]] PathHeader ipv6_path();
[[nodiscard]] PathHeader with_vlan(PathHeader path);

/// Returns distinct values for every field, for any opcode.
[[nodiscard]] PacketFields sample_fields(Opcode opcode);
[[nodiscard]] std::vector<uint8_t> sample_payload(size_t bytes);

}  // namespace faultline::wire::test
