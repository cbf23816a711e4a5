// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/packet/opcode.hpp"

#include <set>

#include <gtest/gtest.h>

#include "stack/wire/packet/headers.hpp"
#include "tests/unit/wire/expected_opcodes.hpp"

namespace faultline::wire::test::opcode_test {
namespace {

TEST(OpcodeTable, HoldsExactlyTheSpecifiedOpcodes) {
  std::set<std::string_view> names;
  for (unsigned value = 0; value < 256; ++value) {
    const OpcodeInfo& info = opcode_info(static_cast<uint8_t>(value));
    const auto expected = expected_opcode(static_cast<uint8_t>(value));
    ASSERT_EQ(info.known, expected.has_value()) << value;
    if (!expected) continue;
    EXPECT_EQ(info.name, expected->name);
    EXPECT_EQ(info.extended_bytes, expected->extended_bytes) << info.name;
    EXPECT_EQ(info.payload_min_bytes, expected->payload_min_bytes) << info.name;
    EXPECT_EQ(info.payload_max_bytes, expected->payload_max_bytes) << info.name;
    EXPECT_EQ(info.payload == PayloadRule::full_mtu, expected->full_mtu) << info.name;
    EXPECT_EQ(static_cast<unsigned>(info.service), value >> 5) << info.name;
    EXPECT_TRUE(names.insert(info.name).second) << info.name << " twice";
  }
}

TEST(OpcodeTable, HeadersDoNotOverlapAndFillTheirRoom) {
  const std::pair<ExtendedHeader, uint32_t> kSizes[] = {
      {kDeth, 8}, {kReth, 16}, {kAtomicEth, 28},   {kAeth, 4},     {kAtomicAckEth, 8}, {kImmDt, 4},
      {kIeth, 4}, {kFeth, 4},  {kCnpReserved, 16}, {kSackEth, 32}, {kXrcEth, 4}};
  for (const ExpectedOpcode& row : expected_opcodes()) {
    const OpcodeInfo& info = opcode_info(row.value);
    std::vector<int> uses(info.extended_bytes);
    for (const auto& [header, bytes] : kSizes) {
      if (!info.has(header)) continue;
      ASSERT_LE(info.offset_of(header) + bytes, info.extended_bytes) << info.name;
      for (uint32_t i = 0; i < bytes; ++i) ++uses[info.offset_of(header) + i];
    }
    EXPECT_EQ(uses, std::vector<int>(info.extended_bytes, 1)) << info.name;
  }
}

TEST(OpcodeTable, HeaderOrderIsTheSpecifications) {
  EXPECT_LT(opcode_info(Opcode::rc_write_only_imm).offset_of(kReth),
            opcode_info(Opcode::rc_write_only_imm).offset_of(kImmDt));
  EXPECT_LT(opcode_info(Opcode::ud_send_only_imm).offset_of(kDeth),
            opcode_info(Opcode::ud_send_only_imm).offset_of(kImmDt));
  EXPECT_LT(opcode_info(Opcode::rc_atomic_acknowledge).offset_of(kAeth),
            opcode_info(Opcode::rc_atomic_acknowledge).offset_of(kAtomicAckEth));
  EXPECT_LT(opcode_info(Opcode::rc_flush).offset_of(kFeth), opcode_info(Opcode::rc_flush).offset_of(kReth));
}

TEST(OpcodeTable, PlacesAndDirections) {
  using enum Opcode;
  for (const ExpectedOpcode& row : expected_opcodes()) {
    const OpcodeInfo& info = opcode_info(row.value);
    const bool first = row.name.find("_FIRST") != row.name.npos;
    const bool middle = row.name.find("_MIDDLE") != row.name.npos;
    const bool last = row.name.find("_LAST") != row.name.npos;
    EXPECT_EQ(info.starts_message(), !middle && !last) << info.name;
    EXPECT_EQ(info.ends_message(), !first && !middle) << info.name;
    const bool answer = row.name.find("RESP") != row.name.npos || row.name.find("ACK") != row.name.npos;
    EXPECT_EQ(info.request, !answer && row.name != "CNP") << info.name;
  }
  EXPECT_EQ(opcode_info(rc_compare_swap).operation, Operation::compare_swap);
  EXPECT_EQ(opcode_info(rc_fetch_add).operation, Operation::fetch_add);
  EXPECT_EQ(opcode_info(rc_flush).operation, Operation::flush);
  EXPECT_EQ(opcode_info(rc_atomic_write).operation, Operation::atomic_write);
  EXPECT_EQ(opcode_info(cnp).operation, Operation::congestion_notification);
  EXPECT_EQ(opcode_info(uc_write_middle).operation, Operation::write);
  EXPECT_EQ(opcode_info(rc_read_response_middle).operation, Operation::read_response);
  EXPECT_EQ(opcode_info(ud_send_only).operation, Operation::send);
}

}  // namespace
}  // namespace faultline::wire::test::opcode_test
