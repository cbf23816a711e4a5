// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/capture/pcapng.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace faultline::glue::pcapng::pcapng_test {
namespace {

template <typename Number>
Number load(std::span<const uint8_t> bytes, size_t at) {
  Number value{};
  EXPECT_LE(at + sizeof value, bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Options by their code, from `at` to the end of the block.
std::map<uint16_t, std::string> options_of(std::span<const uint8_t> block, size_t at) {
  std::map<uint16_t, std::string> options;
  while (const auto code = load<uint16_t>(block, at)) {
    const auto length = load<uint16_t>(block, at + 2);
    EXPECT_LE(at + 4 + length, block.size());
    options[code] = {reinterpret_cast<const char*>(block.data()) + at + 4, length};
    at += 4 + (length + 3U) / 4 * 4;
  }
  EXPECT_EQ(load<uint16_t>(block, at + 2), 0U) << "opt_endofopt";
  EXPECT_EQ(at + 8, block.size()) << "then the block's length";
  return options;
}

constexpr size_t kPacketAt = 28;

std::vector<uint8_t> numbers(size_t count) {
  std::vector<uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  return bytes;
}

class PacketBlock : public testing::TestWithParam<size_t> {};

TEST_P(PacketBlock, HasBothLengthsThePacketAndItsComment) {
  const std::vector<uint8_t> bytes = numbers(GetParam());
  const std::string comment(GetParam() + 1, 'c');
  std::array<uint8_t, 256> room{};
  const size_t length = write_packet(room, {.time_ns = 0x123456789abcdef0,
                                            .direction = Direction::in,
                                            .original_bytes = 77,
                                            .bytes = bytes,
                                            .comment = comment});
  ASSERT_NE(length, 0U);
  const std::span<const uint8_t> block(room.data(), length);
  EXPECT_EQ(length % 4, 0U);
  EXPECT_EQ(load<uint32_t>(block, 0), 6U);
  EXPECT_EQ(load<uint32_t>(block, 4), length);
  EXPECT_EQ(load<uint32_t>(block, length - 4), length);
  EXPECT_EQ(load<uint32_t>(block, 8), 0U) << "interface";
  EXPECT_EQ(load<uint32_t>(block, 12), 0x12345678U);
  EXPECT_EQ(load<uint32_t>(block, 16), 0x9abcdef0U);
  EXPECT_EQ(load<uint32_t>(block, 20), bytes.size());
  EXPECT_EQ(load<uint32_t>(block, 24), 77U);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), block.begin() + kPacketAt));
  const auto options = options_of(block, kPacketAt + (bytes.size() + 3) / 4 * 4);
  EXPECT_EQ(options, (std::map<uint16_t, std::string>{{1, comment}, {2, {"\1\0\0\0", 4}}}));
}

INSTANTIATE_TEST_SUITE_P(EachPadding, PacketBlock, testing::Values(0, 1, 2, 3, 4, 5, 61));

TEST(PacketBlock, HasNoCommentWithoutText) {
  std::array<uint8_t, 256> room{};
  const size_t length = write_packet(room, {.direction = Direction::out, .bytes = {}, .comment = {}});
  EXPECT_EQ(options_of({room.data(), length}, kPacketAt),
            (std::map<uint16_t, std::string>{{2, {"\2\0\0\0", 4}}}));
}

TEST(PacketBlock, IsRefusedInEachRoomThatIsTooSmall) {
  const std::vector<uint8_t> bytes = numbers(13);
  const Packet packet{.bytes = bytes, .comment = "a comment"};
  std::vector<uint8_t> room(256);
  const size_t length = write_packet(room, packet);
  ASSERT_NE(length, 0U);
  EXPECT_LE(length, bytes.size() + packet.comment.size() + kMostPacketOverheadBytes);
  for (size_t size = 0; size < length; ++size) {
    // A separate allocation, so that the address sanitizer sees a write behind its end.
    std::vector<uint8_t> small(size);
    EXPECT_EQ(write_packet(small, packet), 0U) << size;
  }
  std::vector<uint8_t> exact(length);
  EXPECT_EQ(write_packet(exact, packet), length);
}

TEST(PacketBlock, IsRefusedWithACommentLongerThanAnOption) {
  std::vector<uint8_t> room(200'000);
  const std::string longest(65'535, 'c');
  EXPECT_NE(write_packet(room, {.bytes = {}, .comment = longest}), 0U);
  const std::string longer(65'536, 'c');
  EXPECT_EQ(write_packet(room, {.bytes = {}, .comment = longer}), 0U);
}

TEST(InterfaceBlock, HasNameDescriptionAndResolution) {
  std::array<uint8_t, 256> room{};
  const size_t length = write_interface(room, "faultline0", "port 1");
  ASSERT_NE(length, 0U);
  const std::span<const uint8_t> block(room.data(), length);
  EXPECT_EQ(load<uint32_t>(block, 0), 1U);
  EXPECT_EQ(load<uint16_t>(block, 8), 1U) << "Ethernet";
  EXPECT_EQ(options_of(block, 16),
            (std::map<uint16_t, std::string>{{2, "faultline0"}, {3, "port 1"}, {9, "\t"}}));
}

TEST(SectionBlock, HasTheMagicTheVersionAndTheProgram) {
  std::array<uint8_t, 256> room{};
  const size_t length = write_section_header(room, "faultline");
  ASSERT_NE(length, 0U);
  const std::span<const uint8_t> block(room.data(), length);
  EXPECT_EQ(load<uint32_t>(block, 0), 0x0a0d0d0aU);
  EXPECT_EQ(load<uint32_t>(block, 8), 0x1a2b3c4dU);
  EXPECT_EQ(load<uint32_t>(block, 12), 1U) << "version 1.0";
  EXPECT_EQ(load<uint64_t>(block, 16), UINT64_MAX);
  EXPECT_EQ(options_of(block, 24), (std::map<uint16_t, std::string>{{4, "faultline"}}));
}

}  // namespace
}  // namespace faultline::glue::pcapng::pcapng_test
