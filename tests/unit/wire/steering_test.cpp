// SPDX-License-Identifier: BSD-3-Clause
// What a switch examines, on real connection management traffic (tests/data/wire/cm_*.pcap).
#include "stack/wire/link/steering.hpp"

#include <map>

#include <gtest/gtest.h>

#include "stack/wire/mad/mad_cm.hpp"
#include "tests/unit/wire/capture.hpp"

namespace faultline::wire::test::steering_test {
namespace {

std::vector<std::filesystem::path> cm_captures() {
  std::vector<std::filesystem::path> found;
  for (const auto& path : golden_captures())
    if (path.filename().string().starts_with("cm_")) found.push_back(path);
  return found;
}

TEST(Steering, EveryConversationOfTheGoldenCapturesIsFollowed) {
  size_t services = 0;
  size_t answers = 0;
  for (const auto& path : cm_captures()) {
    // First sender of each communication ID, which is at the start of the message's data.
    std::map<uint32_t, MacAddress> owner_of_id;
    for (const Frame& frame : read_capture(path)) {
      if (classify(frame) != FrameKind::roce || peek_destination_qpn(frame) != kManagementQpn) continue;
      const auto message = peek_cm_message(frame);
      ASSERT_TRUE(message) << path;
      const auto ethernet = peek_ethernet(frame);
      ASSERT_TRUE(ethernet);
      Packet packet;
      ASSERT_EQ(parse(frame, packet), ParseError::none);
      EXPECT_EQ(peek_destination_gid(frame), packet.destination_gid());
      if (const auto service = service_id(*message)) {
        ++services;
        EXPECT_NE(*service, 0U);
      } else {
        ++answers;
        const auto receiver = receiver_id(*message);
        ASSERT_TRUE(receiver);
        const auto owner = owner_of_id.find(*receiver);
        ASSERT_NE(owner, owner_of_id.end()) << path;
        EXPECT_EQ(owner->second, ethernet->destination);
      }
      owner_of_id.emplace(load_be32(packet.payload().data() + 24), ethernet->source);
    }
  }
  EXPECT_GT(services, 4U);
  EXPECT_GT(answers, 12U);
}

TEST(Steering, ShortFramesHaveNoDestination) {
  size_t seen = 0;
  for (const auto& path : cm_captures())
    for (const Frame& frame : read_capture(path)) {
      if (classify(frame) != FrameKind::roce || peek_destination_qpn(frame) != kManagementQpn) continue;
      ++seen;
      // The headers and the 256 bytes of a MAD are needed; the ICRC after them is not.
      for (size_t bytes = 0; bytes + kIcrcBytes < frame.size(); ++bytes)
        EXPECT_FALSE(peek_cm_message({frame.data(), bytes}));
    }
  EXPECT_GT(seen, 0U);
}

// Only a positive acknowledgement completes sends and asks for nothing: a NAK needs an answer.
TEST(Steering, FindsPlainAcknowledgements) {
  size_t acks = 0;
  size_t others = 0;
  for (const char* name : {"rc_write.pcap", "rc_read.pcap", "seq_nak_send.pcap", "rc_send_ipv6.pcap"})
    for (const Frame& frame : read_capture(golden_directory() / name)) {
      Packet packet;
      if (classify(frame) != FrameKind::roce || parse(frame, packet) != ParseError::none) continue;
      const bool is_ack =
          packet.info->operation == Operation::acknowledge && (packet.aeth().syndrome & 0xe0) == 0;
      EXPECT_EQ(is_plain_ack(frame), is_ack) << name;
      ++(is_ack ? acks : others);
      if (!is_ack) continue;
      Frame nak = frame;
      nak[packet.extended_offset] = 0x60;
      EXPECT_FALSE(is_plain_ack(nak));
      nak.resize(packet.extended_offset);
      EXPECT_FALSE(is_plain_ack(nak)) << "cut before the AETH";
    }
  EXPECT_GT(acks, 0U);
  EXPECT_GT(others, 0U);
}

TEST(Steering, OtherTrafficIsNoCm) {
  for (const Frame& frame : read_capture(golden_directory() / "rc_write.pcap"))
    EXPECT_FALSE(peek_cm_message(frame));
}

}  // namespace
}  // namespace faultline::wire::test::steering_test
