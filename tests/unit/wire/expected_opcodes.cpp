// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/wire/expected_opcodes.hpp"

namespace faultline::wire::test {
namespace {

// clang-format off
constexpr ExpectedOpcode kExpected[] = {
    // name, value, full MTU, bytes of extended headers, least and most payload
    {"RC.SEND_FIRST", 0x00, true, 0, 256, 4096},
    {"RC.SEND_MIDDLE", 0x01, true, 0, 256, 4096},
    {"RC.SEND_LAST", 0x02, false, 0, 1, 4096},
    {"RC.SEND_LAST_IMM", 0x03, false, 4, 1, 4096},
    {"RC.SEND_ONLY", 0x04, false, 0, 0, 4096},
    {"RC.SEND_ONLY_IMM", 0x05, false, 4, 0, 4096},
    {"RC.WRITE_FIRST", 0x06, true, 16, 256, 4096},
    {"RC.WRITE_MIDDLE", 0x07, true, 0, 256, 4096},
    {"RC.WRITE_LAST", 0x08, false, 0, 1, 4096},
    {"RC.WRITE_LAST_IMM", 0x09, false, 4, 1, 4096},
    {"RC.WRITE_ONLY", 0x0a, false, 16, 0, 4096},
    {"RC.WRITE_ONLY_IMM", 0x0b, false, 20, 0, 4096},
    {"RC.READ_REQ", 0x0c, false, 16, 0, 0},
    {"RC.READ_RESP_FIRST", 0x0d, true, 4, 256, 4096},
    {"RC.READ_RESP_MIDDLE", 0x0e, true, 0, 256, 4096},
    {"RC.READ_RESP_LAST", 0x0f, false, 4, 1, 4096},
    {"RC.READ_RESP_ONLY", 0x10, false, 4, 0, 4096},
    {"RC.ACK", 0x11, false, 4, 0, 0},
    {"RC.ATOMIC_ACK", 0x12, false, 12, 0, 0},
    {"RC.CMP_SWAP", 0x13, false, 28, 0, 0},
    {"RC.FETCH_ADD", 0x14, false, 28, 0, 0},
    {"RC.SEND_LAST_INV", 0x16, false, 4, 1, 4096},
    {"RC.SEND_ONLY_INV", 0x17, false, 4, 0, 4096},
    {"RC.FLUSH", 0x1c, false, 20, 0, 0},
    {"RC.ATOMIC_WRITE", 0x1d, false, 16, 8, 8},
    {"UC.SEND_FIRST", 0x20, true, 0, 256, 4096},
    {"UC.SEND_MIDDLE", 0x21, true, 0, 256, 4096},
    {"UC.SEND_LAST", 0x22, false, 0, 1, 4096},
    {"UC.SEND_LAST_IMM", 0x23, false, 4, 1, 4096},
    {"UC.SEND_ONLY", 0x24, false, 0, 0, 4096},
    {"UC.SEND_ONLY_IMM", 0x25, false, 4, 0, 4096},
    {"UC.WRITE_FIRST", 0x26, true, 16, 256, 4096},
    {"UC.WRITE_MIDDLE", 0x27, true, 0, 256, 4096},
    {"UC.WRITE_LAST", 0x28, false, 0, 1, 4096},
    {"UC.WRITE_LAST_IMM", 0x29, false, 4, 1, 4096},
    {"UC.WRITE_ONLY", 0x2a, false, 16, 0, 4096},
    {"UC.WRITE_ONLY_IMM", 0x2b, false, 20, 0, 4096},
    {"UD.SEND_ONLY", 0x64, false, 8, 0, 4096},
    {"UD.SEND_ONLY_IMM", 0x65, false, 12, 0, 4096},
    {"XRC.SEND_FIRST", 0xa0, true, 4, 256, 4096},
    {"XRC.SEND_MIDDLE", 0xa1, true, 4, 256, 4096},
    {"XRC.SEND_LAST", 0xa2, false, 4, 1, 4096},
    {"XRC.SEND_LAST_IMM", 0xa3, false, 8, 1, 4096},
    {"XRC.SEND_ONLY", 0xa4, false, 4, 0, 4096},
    {"XRC.SEND_ONLY_IMM", 0xa5, false, 8, 0, 4096},
    {"XRC.WRITE_FIRST", 0xa6, true, 20, 256, 4096},
    {"XRC.WRITE_MIDDLE", 0xa7, true, 4, 256, 4096},
    {"XRC.WRITE_LAST", 0xa8, false, 4, 1, 4096},
    {"XRC.WRITE_LAST_IMM", 0xa9, false, 8, 1, 4096},
    {"XRC.WRITE_ONLY", 0xaa, false, 20, 0, 4096},
    {"XRC.WRITE_ONLY_IMM", 0xab, false, 24, 0, 4096},
    {"XRC.READ_REQ", 0xac, false, 20, 0, 0},
    {"XRC.READ_RESP_FIRST", 0xad, true, 4, 256, 4096},
    {"XRC.READ_RESP_MIDDLE", 0xae, true, 0, 256, 4096},
    {"XRC.READ_RESP_LAST", 0xaf, false, 4, 1, 4096},
    {"XRC.READ_RESP_ONLY", 0xb0, false, 4, 0, 4096},
    {"XRC.ACK", 0xb1, false, 4, 0, 0},
    {"XRC.ATOMIC_ACK", 0xb2, false, 12, 0, 0},
    {"XRC.CMP_SWAP", 0xb3, false, 32, 0, 0},
    {"XRC.FETCH_ADD", 0xb4, false, 32, 0, 0},
    {"XRC.SEND_LAST_INV", 0xb6, false, 8, 1, 4096},
    {"XRC.SEND_ONLY_INV", 0xb7, false, 8, 0, 4096},
    {"XRC.FLUSH", 0xbc, false, 24, 0, 0},
    {"XRC.ATOMIC_WRITE", 0xbd, false, 20, 8, 8},
    {"CNP", 0x81, false, 16, 0, 0},
    {"RC.SELECTIVE_ACK", 0xc0, false, 36, 0, 0},
};
// clang-format on

constexpr uint32_t kUdpBthIcrcBytes = 8 + 12 + 4;

}  // namespace

std::span<const ExpectedOpcode> expected_opcodes() {
  return kExpected;
}

std::optional<ExpectedOpcode> expected_opcode(uint8_t value) {
  for (const ExpectedOpcode& row : kExpected)
    if (row.value == value) return row;
  return std::nullopt;
}

bool expected_valid(uint8_t opcode, uint32_t udp_bytes, uint32_t pad_bytes) {
  const auto row = expected_opcode(opcode);
  if (!row || udp_bytes < kUdpBthIcrcBytes + row->extended_bytes + pad_bytes) return false;
  const uint32_t payload_bytes = udp_bytes - kUdpBthIcrcBytes - row->extended_bytes - pad_bytes;
  if ((payload_bytes + pad_bytes) % 4 != 0) return false;
  if (payload_bytes < row->payload_min_bytes || payload_bytes > row->payload_max_bytes) return false;
  if (!row->full_mtu) return true;
  for (const uint32_t path_mtu_bytes : {256U, 512U, 1024U, 2048U, 4096U})
    if (payload_bytes == path_mtu_bytes) return true;
  return false;
}

}  // namespace faultline::wire::test
