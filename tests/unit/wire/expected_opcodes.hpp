// SPDX-License-Identifier: BSD-3-Clause
// A second table of the opcodes, transcribed as plain numbers from IBA vol. 1 table 38, A17 and A19,
// independently of the code's table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace faultline::wire::test {

struct ExpectedOpcode {
  std::string_view name;
  uint8_t value;
  bool full_mtu;  ///< the payload is exactly a path MTU
  uint32_t extended_bytes;
  uint32_t payload_min_bytes;
  uint32_t payload_max_bytes;
};

[[nodiscard]] std::span<const ExpectedOpcode> expected_opcodes();
[[nodiscard]] std::optional<ExpectedOpcode> expected_opcode(uint8_t value);

/// Returns whether a UDP datagram of this length may carry this opcode with this pad count.
[[nodiscard]] bool expected_valid(uint8_t opcode, uint32_t udp_bytes, uint32_t pad_bytes);

}  // namespace faultline::wire::test
