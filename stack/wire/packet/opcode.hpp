// SPDX-License-Identifier: BSD-3-Clause
// The opcode table: the headers, lengths and place in a message of each BTH opcode. All code uses this table.
// IBA vol. 1, 9.2.1 (table 38), A17 (CNP), A19 (ATOMIC WRITE, FLUSH).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace faultline::wire {

/// Top three bits of the BTH opcode.
enum class Service : uint8_t { rc = 0, uc = 1, rd = 2, ud = 3, cnp = 4, xrc = 5, manufacturer = 6 };

/// BTH opcodes that this stack knows, with their wire values. XRC opcodes are RC's in the XRC service (IBA
/// A14): in_service.
enum class Opcode : uint8_t {
  rc_send_first = 0x00,
  rc_send_middle = 0x01,
  rc_send_last = 0x02,
  rc_send_last_imm = 0x03,
  rc_send_only = 0x04,
  rc_send_only_imm = 0x05,
  rc_write_first = 0x06,
  rc_write_middle = 0x07,
  rc_write_last = 0x08,
  rc_write_last_imm = 0x09,
  rc_write_only = 0x0a,
  rc_write_only_imm = 0x0b,
  rc_read_request = 0x0c,
  rc_read_response_first = 0x0d,
  rc_read_response_middle = 0x0e,
  rc_read_response_last = 0x0f,
  rc_read_response_only = 0x10,
  rc_acknowledge = 0x11,
  rc_atomic_acknowledge = 0x12,
  rc_compare_swap = 0x13,
  rc_fetch_add = 0x14,
  rc_send_last_invalidate = 0x16,
  rc_send_only_invalidate = 0x17,
  rc_flush = 0x1c,
  rc_atomic_write = 0x1d,
  uc_send_first = 0x20,
  uc_send_middle = 0x21,
  uc_send_last = 0x22,
  uc_send_last_imm = 0x23,
  uc_send_only = 0x24,
  uc_send_only_imm = 0x25,
  uc_write_first = 0x26,
  uc_write_middle = 0x27,
  uc_write_last = 0x28,
  uc_write_last_imm = 0x29,
  uc_write_only = 0x2a,
  uc_write_only_imm = 0x2b,
  ud_send_only = 0x64,
  ud_send_only_imm = 0x65,
  cnp = 0x81,
  /// In the range that IBA 9.2.1 reserves for manufacturers. An acknowledgement with a map of packets
  /// received after a gap. Sent only to a peer that announced support (Bth::selective_ack).
  rc_selective_ack = 0xc0,
};

/// Maps an RC opcode to the same operation in another service.
[[nodiscard]] constexpr Opcode in_service(Opcode rc, Service service) {
  return static_cast<Opcode>(static_cast<uint8_t>(rc) | static_cast<uint8_t>(service) << 5);
}

/// Operation that a packet requests or answers, independent of its place in the message.
enum class Operation : uint8_t {
  none,
  send,
  write,
  read_request,
  read_response,
  acknowledge,
  atomic_acknowledge,
  compare_swap,
  fetch_add,
  flush,
  atomic_write,
  congestion_notification,
  selective_acknowledge
};

/// A packet's place in its message.
enum class Place : uint8_t { first, middle, last, only };

/// Extended headers, as bits; they follow the BTH in the order of IBA table 38.
enum ExtendedHeader : uint16_t {
  kDeth = 1U << 0,
  kReth = 1U << 1,
  kAtomicEth = 1U << 2,
  kAeth = 1U << 3,
  kAtomicAckEth = 1U << 4,
  kImmDt = 1U << 5,
  kIeth = 1U << 6,
  kFeth = 1U << 7,
  kCnpReserved = 1U << 8,
  kSackEth = 1U << 9,
  kXrcEth = 1U << 10
};

/// Number of payload bytes that a packet of this opcode may carry.
enum class PayloadRule : uint8_t {
  none,         ///< exactly 0, pad 0
  full_mtu,     ///< exactly the path MTU, pad 0 (first and middle packets)
  one_to_mtu,   ///< 1..path MTU (last packets)
  zero_to_mtu,  ///< 0..path MTU (only packets)
  eight_bytes   ///< exactly 8, pad 0 (ATOMIC WRITE)
};

/// A row is one cache line: a lookup costs one shift and one line.
struct alignas(64) OpcodeInfo {
  bool known = false;
  Service service = Service::rc;
  Operation operation = Operation::none;
  Place place = Place::only;
  bool request = false;           ///< sent from requester to responder
  uint16_t extended_headers = 0;  ///< ExtendedHeader bits
  uint8_t extended_bytes = 0;     ///< their length together
  PayloadRule payload = PayloadRule::none;
  uint8_t pad_mask = 0;            ///< 3 if the payload may be padded
  uint16_t payload_min_bytes = 0;  ///< the payload rule as bounds that hold at any path MTU
  uint16_t payload_max_bytes = 0;
  std::array<uint8_t, 11> header_offsets{};  ///< from the end of the BTH, by the header's bit number
  std::string_view name = "unknown";

  [[nodiscard]] bool has(ExtendedHeader header) const { return (extended_headers & header) != 0; }
  /// Offset of a header of the opcode, from the end of the BTH.
  [[nodiscard]] uint32_t offset_of(ExtendedHeader header) const {
    return header_offsets[static_cast<size_t>(std::countr_zero(static_cast<uint16_t>(header)))];
  }
  [[nodiscard]] bool starts_message() const { return place == Place::first || place == Place::only; }
  [[nodiscard]] bool ends_message() const { return place == Place::last || place == Place::only; }
};

/// Rows for all 256 values; reject packets with `known == false`.
using OpcodeTable = std::array<OpcodeInfo, 256>;
extern const OpcodeTable kOpcodeTable;
[[nodiscard]] inline const OpcodeInfo& opcode_info(uint8_t opcode) {
  return kOpcodeTable[opcode];
}
[[nodiscard]] inline const OpcodeInfo& opcode_info(Opcode opcode) {
  return opcode_info(static_cast<uint8_t>(opcode));
}

}  // namespace faultline::wire
