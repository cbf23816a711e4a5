// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/wire/expected_opcodes.hpp"

namespace faultline::wire::test {
namespace {

// clang-format off
constexpr ExpectedOpcode kExpected[] = {
    // value, name, bytes of extended headers, least and most payload, full MTU
    {0x00, "RC.SEND_FIRST", 0, 256, 4096, true},
    {0x01, "RC.SEND_MIDDLE", 0, 256, 4096, true},
    {0x02, "RC.SEND_LAST", 0, 1, 4096, false},
    {0x03, "RC.SEND_LAST_IMM", 4, 1, 4096, false},
    {0x04, "RC.SEND_ONLY", 0, 0, 4096, false},
    {0x05, "RC.SEND_ONLY_IMM", 4, 0, 4096, false},
    {0x06, "RC.WRITE_FIRST", 16, 256, 4096, true},
    {0x07, "RC.WRITE_MIDDLE", 0, 256, 4096, true},
    {0x08, "RC.WRITE_LAST", 0, 1, 4096, false},
    {0x09, "RC.WRITE_LAST_IMM", 4, 1, 4096, false},
    {0x0a, "RC.WRITE_ONLY", 16, 0, 4096, false},
    {0x0b, "RC.WRITE_ONLY_IMM", 20, 0, 4096, false},
    {0x0c, "RC.READ_REQ", 16, 0, 0, false},
    {0x0d, "RC.READ_RESP_FIRST", 4, 256, 4096, true},
    {0x0e, "RC.READ_RESP_MIDDLE", 0, 256, 4096, true},
    {0x0f, "RC.READ_RESP_LAST", 4, 1, 4096, false},
    {0x10, "RC.READ_RESP_ONLY", 4, 0, 4096, false},
    {0x11, "RC.ACK", 4, 0, 0, false},
    {0x12, "RC.ATOMIC_ACK", 12, 0, 0, false},
    {0x13, "RC.CMP_SWAP", 28, 0, 0, false},
    {0x14, "RC.FETCH_ADD", 28, 0, 0, false},
    {0x16, "RC.SEND_LAST_INV", 4, 1, 4096, false},
    {0x17, "RC.SEND_ONLY_INV", 4, 0, 4096, false},
    {0x1c, "RC.FLUSH", 20, 0, 0, false},
    {0x1d, "RC.ATOMIC_WRITE", 16, 8, 8, false},
    {0x20, "UC.SEND_FIRST", 0, 256, 4096, true},
    {0x21, "UC.SEND_MIDDLE", 0, 256, 4096, true},
    {0x22, "UC.SEND_LAST", 0, 1, 4096, false},
    {0x23, "UC.SEND_LAST_IMM", 4, 1, 4096, false},
    {0x24, "UC.SEND_ONLY", 0, 0, 4096, false},
    {0x25, "UC.SEND_ONLY_IMM", 4, 0, 4096, false},
    {0x26, "UC.WRITE_FIRST", 16, 256, 4096, true},
    {0x27, "UC.WRITE_MIDDLE", 0, 256, 4096, true},
    {0x28, "UC.WRITE_LAST", 0, 1, 4096, false},
    {0x29, "UC.WRITE_LAST_IMM", 4, 1, 4096, false},
    {0x2a, "UC.WRITE_ONLY", 16, 0, 4096, false},
    {0x2b, "UC.WRITE_ONLY_IMM", 20, 0, 4096, false},
    {0x64, "UD.SEND_ONLY", 8, 0, 4096, false},
    {0x65, "UD.SEND_ONLY_IMM", 12, 0, 4096, false},
    {0x81, "CNP", 16, 0, 0, false},
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
