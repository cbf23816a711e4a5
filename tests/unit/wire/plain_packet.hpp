// SPDX-License-Identifier: BSD-3-Clause
// RoCEv2 frames the plain way: byte after byte, CRC bit by bit, checksums word by word. What stack/wire does
// fast is compared with it, and packets that stack/wire would never build are made with it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stack/wire/packet/frame.hpp"
#include "tests/unit/wire/capture.hpp"

namespace faultline::wire::test {

[[nodiscard]] uint32_t plain_crc32(std::span<const uint8_t> bytes);

/// RFC 1071 over 16-bit words, finished (inverted). Right data that holds its checksum gives 0.
[[nodiscard]] uint16_t plain_checksum(std::span<const uint8_t> bytes);

/// The UDP checksum of the datagram that ends the IP packet, computed with its checksum field as it is.
[[nodiscard]] uint16_t plain_udp_checksum(std::span<const uint8_t> ip_packet, bool ipv6);

[[nodiscard]] uint32_t plain_icrc(std::span<const uint8_t> ip_packet_without_icrc, bool ipv6);

/// Ethernet, IP and UDP headers around `transport` (BTH to the end of the pad), then the ICRC; `icrc_xor`
/// spoils that.
[[nodiscard]] Frame plain_frame(const PathHeader& path, std::span<const uint8_t> transport,
                                uint16_t ipv4_identification = 0, uint32_t icrc_xor = 0);

/// BTH, extended headers, payload and pad of a packet's meaning.
[[nodiscard]] std::vector<uint8_t> plain_transport(const PacketFields& fields,
                                                   std::span<const uint8_t> payload);

/// Paths for tests: documentation addresses, every field different from its default.
[[nodiscard]] PathHeader ipv4_path();
[[nodiscard]] PathHeader ipv6_path();
[[nodiscard]] PathHeader with_vlan(PathHeader path);

/// Every field different, for any opcode.
[[nodiscard]] PacketFields sample_fields(Opcode opcode);
[[nodiscard]] std::vector<uint8_t> sample_payload(size_t bytes);

}  // namespace faultline::wire::test
