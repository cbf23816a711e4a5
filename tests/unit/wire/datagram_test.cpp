// SPDX-License-Identifier: BSD-3-Clause
// Packets that sockets carry: from a frame to a UDP payload, and back.
#include "stack/wire/link/datagram.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/packet.hpp"
#include "tests/unit/wire/meaning.hpp"
#include "tests/unit/wire/reference_packet.hpp"

namespace faultline::wire::test::datagram_test {
namespace {

constexpr auto kBySocket = static_cast<uint8_t>(static_cast<uint8_t>(Checksums::ip_in_software) |
                                                static_cast<uint8_t>(Checksums::by_socket));
constexpr uint32_t kPayloadBytes = 301;

Frame frame_of(const PathHeader& path, uint8_t checksums) {
  const FrameTemplate frame_template(path, checksums);
  const std::vector<uint8_t> payload = sample_payload(kPayloadBytes);
  Frame frame(frame_template.frame_bytes(Opcode::rc_send_only, kPayloadBytes));
  std::ranges::copy(payload,
                    frame_template.write_headers(frame, sample_fields(Opcode::rc_send_only), kPayloadBytes));
  EXPECT_EQ(frame_template.seal(frame, Opcode::rc_send_only, kPayloadBytes), frame.size());
  return frame;
}

/// Returns the frame that a receiver makes of the UDP payload and of what its socket reports.
Frame received(const PathHeader& path, std::span<const uint8_t> payload) {
  const bool ipv6 = !path.destination_gid.is_ipv4();
  Frame frame(udp_payload_offset(ipv6) + payload.size(), 0xee);
  std::ranges::copy(payload, frame.begin() + udp_payload_offset(ipv6));
  EXPECT_EQ(write_datagram_headers(frame,
                                   {.source_mac = path.source_mac,
                                    .destination_mac = path.destination_mac,
                                    .source = path.source_gid,
                                    .destination = path.destination_gid,
                                    .source_port = kRoceUdpPort,
                                    .traffic_class = path.traffic_class},
                                   static_cast<uint32_t>(payload.size())),
            frame.size());
  return frame;
}

TEST(Datagram, AReceiverHasTheSendersPacketWithItsIcrc) {
  for (PathHeader path : {ipv4_path(), ipv6_path()}) {
    Frame sent = frame_of(path, kBySocket);
    const auto datagram = datagram_of(sent);
    ASSERT_TRUE(datagram);
    EXPECT_EQ(datagram->source, path.source_gid);
    EXPECT_EQ(datagram->destination, path.destination_gid);
    EXPECT_EQ(datagram->traffic_class, path.traffic_class);
    const Frame frame = received(path, datagram->payload);
    Packet packet;
    ASSERT_EQ(name_of(parse(frame, packet)), "none");
    EXPECT_TRUE(icrc_matches(packet));
    EXPECT_TRUE(std::ranges::equal(packet.payload(), sample_payload(kPayloadBytes)));
    EXPECT_EQ(packet.source_gid(), path.source_gid);
    EXPECT_EQ(packet.destination_gid(), path.destination_gid);
    EXPECT_EQ(packet.source_mac(), path.source_mac);
    EXPECT_EQ(packet.destination_mac(), path.destination_mac);
    EXPECT_EQ(packet.traffic_class(), path.traffic_class);
    EXPECT_EQ(packet.udp_source_port(), kRoceUdpPort);
    EXPECT_EQ(packet.ipv4_identification(), 0);
  }
}

TEST(Datagram, ADamagedPayloadFailsTheIcrc) {
  for (const PathHeader& path : {ipv4_path(), ipv6_path()}) {
    Frame sent = frame_of(path, kBySocket);
    const auto datagram = datagram_of(sent);
    ASSERT_TRUE(datagram);
    for (const size_t at : {size_t{40}, datagram->payload.size() - 1}) {
      Frame frame = received(path, datagram->payload);
      frame[frame.size() - datagram->payload.size() + at] ^= 1;
      Packet packet;
      ASSERT_EQ(name_of(parse(frame, packet)), "none");
      EXPECT_FALSE(icrc_matches(packet)) << at;
    }
  }
}

// A sender that chooses its port and its identification has another ICRC than a socket's packet.
TEST(Datagram, ThePortAndTheIdentificationOfASocketAreInTheIcrc) {
  Frame sent = frame_of(ipv4_path(), static_cast<uint8_t>(Checksums::ip_in_software));
  const auto datagram = datagram_of(sent);
  ASSERT_TRUE(datagram);
  Packet packet;
  const Frame frame = received(ipv4_path(), datagram->payload);
  ASSERT_EQ(name_of(parse(frame, packet)), "none");
  EXPECT_FALSE(icrc_matches(packet));
}

TEST(Datagram, OtherFramesAndCutOnesAreNone) {
  for (const PathHeader& path : {ipv4_path(), ipv6_path()}) {
    const Frame whole = frame_of(path, kBySocket);
    const uint32_t payload_at = udp_payload_offset(!path.destination_gid.is_ipv4());
    for (size_t length = 0; length < whole.size(); ++length) {
      Frame cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
      cut.shrink_to_fit();
      EXPECT_FALSE(datagram_of(cut)) << length;
    }
    for (const uint32_t at :
         {kEthernetBytes - 2,  // EtherType
          path.destination_gid.is_ipv4() ? payload_at - kUdpBytes - kIpv4Bytes + kIpv4ProtocolAt
                                         : payload_at - kUdpBytes - kIpv6Bytes + kIpv6NextHeaderAt,
          payload_at - kUdpBytes + kUdpDestinationPortAt}) {
      Frame other = whole;
      other[at] ^= 0x40;
      EXPECT_FALSE(datagram_of(other)) << at;
    }
    Frame short_udp = whole;
    short_udp[payload_at - kUdpBytes + kUdpLengthAt] = 0;
    short_udp[payload_at - kUdpBytes + kUdpLengthAt + 1] = kUdpBytes - 1;
    EXPECT_FALSE(datagram_of(short_udp));
  }
  Frame tagged = frame_of(with_vlan(ipv4_path()), kBySocket);
  EXPECT_FALSE(datagram_of(tagged));
}

TEST(Datagram, HeadersAreNotWrittenBeyondTheFrame) {
  Frame frame(udp_payload_offset(false) + 10);
  const IncomingDatagram datagram{.source_mac = {},
                                  .destination_mac = {},
                                  .source = ipv4_path().source_gid,
                                  .destination = ipv4_path().destination_gid,
                                  .source_port = kRoceUdpPort,
                                  .traffic_class = 0};
  EXPECT_EQ(write_datagram_headers(frame, datagram, 11), 0U);
  EXPECT_EQ(write_datagram_headers(frame, datagram, kMaxDatagramBytes + 1), 0U);
  EXPECT_EQ(write_datagram_headers(std::span(frame).first(20), datagram, 0), 0U);
  EXPECT_EQ(write_datagram_headers(frame, datagram, 10), frame.size());
}

}  // namespace
}  // namespace faultline::wire::test::datagram_test
