// SPDX-License-Identifier: BSD-3-Clause
// Neighbour discovery and ICMPv6 echo. The complete frames were sent by Linux over a veth pair.
#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "stack/wire/link/link.hpp"
#include "tests/unit/wire/reference_packet.hpp"

namespace faultline::wire::test::link_ipv6_test {
namespace {

constexpr MacAddress kOwnMac{{0x02, 0x46, 0x4c, 0, 0, 1}};
constexpr MacAddress kPeerMac{{0x02, 0x46, 0x4c, 0, 0, 2}};
constexpr Gid kOwnIp{{0x20, 0x01, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
constexpr Gid kPeerIp{{0x20, 0x01, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
constexpr Gid kOwnGroup{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1}};
constexpr Gid kAllNodes{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
const std::array<Gid, 2> kOwn{link_local_gid(kOwnMac), kOwnIp};

constexpr size_t kIcmpAt = 14 + 40;

/// "who has 2001:2::1", from 2001:2::2.
Frame solicitation() {
  return {0x33, 0x33, 0xff, 0x00, 0x00, 0x01, 0x02, 0x46, 0x4c, 0x00, 0x00, 0x02, 0x86, 0xdd, 0x60,
          0x00, 0x00, 0x00, 0x00, 0x20, 0x3a, 0xff, 0x20, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00,
          0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xff, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00,
          0x00, 0x00, 0x00, 0x00, 0x01, 0xff, 0x00, 0x00, 0x01, 0x87, 0x00, 0xeb, 0x4c, 0x00, 0x00,
          0x00, 0x00, 0x20, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
          0x00, 0x00, 0x01, 0x01, 0x01, 0x02, 0x46, 0x4c, 0x00, 0x00, 0x02};
}
/// "2001:2::1 is at 02:46:4c:00:00:01", solicited, override.
Frame advertisement() {
  return {0x02, 0x46, 0x4c, 0x00, 0x00, 0x02, 0x02, 0x46, 0x4c, 0x00, 0x00, 0x01, 0x86, 0xdd, 0x60,
          0x00, 0x00, 0x00, 0x00, 0x20, 0x3a, 0xff, 0x20, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00,
          0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x20, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00,
          0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x88, 0x00, 0x67, 0x4f, 0x60, 0x00,
          0x00, 0x00, 0x20, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
          0x00, 0x00, 0x01, 0x02, 0x01, 0x02, 0x46, 0x4c, 0x00, 0x00, 0x01};
}
/// ping -6 -s 13 2001:2::1.
Frame echo_request() {
  return {0x02, 0x46, 0x4c, 0x00, 0x00, 0x01, 0x02, 0x46, 0x4c, 0x00, 0x00, 0x02, 0x86, 0xdd, 0x60,
          0x06, 0xa9, 0xb5, 0x00, 0x15, 0x3a, 0x40, 0x20, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00,
          0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x20, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00,
          0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x80, 0x00, 0xe5, 0x5e, 0x30, 0x23,
          0x00, 0x01, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c};
}
/// Linux's reply to it; its flow label may differ.
Frame echo_reply() {
  return {0x02, 0x46, 0x4c, 0x00, 0x00, 0x02, 0x02, 0x46, 0x4c, 0x00, 0x00, 0x01, 0x86, 0xdd, 0x60,
          0x06, 0xa9, 0xb5, 0x00, 0x15, 0x3a, 0x40, 0x20, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00,
          0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x20, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00,
          0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x81, 0x00, 0xe4, 0x5e, 0x30, 0x23,
          0x00, 0x01, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c};
}
Frame tagged(Frame frame) {
  const Frame tag{0x81, 0x00, 0x60, 100};
  frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  return frame;
}

/// Corrects the checksum by the plain algorithm of RFC 8200, 8.1.
void mend_checksum(Frame& frame) {
  const size_t icmp_bytes = frame.size() - kIcmpAt;
  frame[kIcmpAt + 2] = frame[kIcmpAt + 3] = 0;
  Frame summed(frame.begin() + 22, frame.begin() + kIcmpAt);
  summed.insert(summed.end(),
                {0, 0, static_cast<uint8_t>(icmp_bytes >> 8), static_cast<uint8_t>(icmp_bytes), 0, 0, 0, 58});
  summed.insert(summed.end(), frame.begin() + kIcmpAt, frame.end());
  const uint16_t checksum = plain_checksum(summed);
  frame[kIcmpAt + 2] = static_cast<uint8_t>(checksum >> 8);
  frame[kIcmpAt + 3] = static_cast<uint8_t>(checksum);
}
void set_payload_length(Frame& frame) {
  frame[18] = static_cast<uint8_t>((frame.size() - kIcmpAt) >> 8);
  frame[19] = static_cast<uint8_t>(frame.size() - kIcmpAt);
}

TEST(NeighbourDiscovery, ReadsWhatLinuxSends) {
  NeighbourMessage message;
  ASSERT_TRUE(parse_neighbour_message(solicitation(), message));
  EXPECT_EQ(message.kind, NeighbourMessageKind::solicitation);
  EXPECT_EQ(message.source, kPeerIp);
  EXPECT_EQ(message.destination, kOwnGroup);
  EXPECT_EQ(message.target, kOwnIp);
  EXPECT_EQ(message.sender_mac, kPeerMac);
  ASSERT_TRUE(message.has_link_address);
  EXPECT_EQ(message.link_address, kPeerMac);

  ASSERT_TRUE(parse_neighbour_message(advertisement(), message));
  EXPECT_EQ(message.kind, NeighbourMessageKind::advertisement);
  EXPECT_EQ(message.destination, kPeerIp);
  EXPECT_EQ(message.target, kOwnIp);
  EXPECT_EQ(message.link_address, kOwnMac);
  EXPECT_TRUE(message.solicited && message.override_known && !message.router);
}

TEST(NeighbourDiscovery, WritesWhatLinuxSends) {
  for (const Frame& whole : {solicitation(), advertisement()}) {
    NeighbourMessage message;
    ASSERT_TRUE(parse_neighbour_message(whole, message));
    LinkHeader link;
    std::copy_n(whole.begin(), 6, link.destination.bytes.begin());
    std::copy_n(whole.begin() + 6, 6, link.source.bytes.begin());
    Frame frame(whole.size(), uint8_t{0xa5});
    ASSERT_EQ(build_neighbour_message(frame, message, link), whole.size());
    EXPECT_EQ(frame, whole);
    Frame small(whole.size() - 1);
    EXPECT_EQ(build_neighbour_message(small, message, link), 0U);
    link.vlan = {true, vlan_tci(100, 3)};
    frame.assign(kMaxLinkFrameBytes, uint8_t{0xa5});
    const size_t length = build_neighbour_message(frame, message, link);
    ASSERT_EQ(length, whole.size() + 4);
    frame.resize(length);
    EXPECT_EQ(frame, tagged(whole));
    ASSERT_TRUE(parse_neighbour_message(frame, message));
    EXPECT_EQ(message.target, kOwnIp);
  }
}

TEST(NeighbourDiscovery, RefusesWhatTheRfcTellsNodesToDiscard) {
  NeighbourMessage message;
  const auto refuses = [&](Frame frame, const char* what) {
    mend_checksum(frame);
    EXPECT_FALSE(parse_neighbour_message(frame, message)) << what;
  };
  const auto with = [](Frame frame, size_t at, unsigned value) {
    frame[at] = static_cast<uint8_t>(value);
    return frame;
  };
  for (const Frame& whole : {solicitation(), advertisement()}) {
    refuses(with(whole, 21, 254), "went through a router");
    refuses(with(whole, 20, 17), "not ICMPv6");
    refuses(with(whole, 13, 0xdc), "not IPv6");
    refuses(with(whole, 14, 0x40), "not version 6");
    refuses(with(whole, kIcmpAt, 134), "another type");
    refuses(with(whole, kIcmpAt + 1, 1), "another code");
    refuses(with(whole, kIcmpAt + 8, 0xff), "a multicast target");
    refuses(with(whole, kIcmpAt + 25, 0), "an option of length zero");
    refuses(with(whole, kIcmpAt + 25, 2), "an option beyond the end");
    refuses(with(whole, kIcmpAt + 26, 0x03), "a group address for a link address");
    refuses(with(whole, 22, 0xff), "a multicast source");
    refuses(with(whole, 6, 0x03), "a group address as sender");
    Frame wrong = whole;
    wrong[kIcmpAt + 2] = static_cast<uint8_t>(wrong[kIcmpAt + 2] ^ 1);
    EXPECT_FALSE(parse_neighbour_message(wrong, message));
    Frame odd = whole;
    odd.push_back(0);
    set_payload_length(odd);
    refuses(odd, "a piece of an option");
    Frame cut(whole.begin(), whole.begin() + kIcmpAt + 16);
    set_payload_length(cut);
    refuses(cut, "shorter than the message");
    Frame longer = whole;
    longer[19] = static_cast<uint8_t>(longer[19] + 1);
    refuses(longer, "longer than the frame");
    for (size_t bytes = 0; bytes < whole.size(); ++bytes)
      EXPECT_FALSE(parse_neighbour_message(
          Frame(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes)), message));
  }
  // Solicited, but to the all-nodes group (RFC 4861, 7.1.2).
  Frame to_all = advertisement();
  std::copy(kAllNodes.bytes.begin(), kAllNodes.bytes.end(), to_all.begin() + 38);
  refuses(to_all, "solicited by all nodes");
}

TEST(NeighbourDiscovery, TakesAProbeOfAnAddressAndOtherOptions) {
  NeighbourMessage message;
  Frame probe = solicitation();
  std::fill_n(probe.begin() + 22, 16, uint8_t{0});
  mend_checksum(probe);
  EXPECT_FALSE(parse_neighbour_message(probe, message)) << "a probe has no link address";
  probe.resize(kIcmpAt + 24);
  set_payload_length(probe);
  mend_checksum(probe);
  ASSERT_TRUE(parse_neighbour_message(probe, message));
  EXPECT_TRUE(message.source.is_zero());
  EXPECT_FALSE(message.has_link_address);

  Frame nonce = solicitation();  // option of RFC 3971, 16 bytes, before ours
  nonce.insert(nonce.begin() + kIcmpAt + 24, {14, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14});
  set_payload_length(nonce);
  mend_checksum(nonce);
  ASSERT_TRUE(parse_neighbour_message(nonce, message));
  EXPECT_EQ(message.link_address, kPeerMac);
}

TEST(EchoIpv6, IsAnsweredAsLinuxAnswers) {
  Frame frame = echo_request();
  ASSERT_EQ(answer_echo(frame, kOwnMac, kOwn), frame.size());
  Frame expected = echo_reply();
  EXPECT_EQ(frame, expected);
  Frame with_tag = tagged(echo_request());
  ASSERT_EQ(answer_echo(with_tag, kOwnMac, kOwn), with_tag.size());
  EXPECT_EQ(with_tag, tagged(expected));
}

TEST(EchoIpv6, NothingElseIsAnsweredOrTouched) {
  const auto refuses = [](Frame frame, const char* what) {
    const Frame before = frame;
    EXPECT_EQ(answer_echo(frame, kOwnMac, kOwn), 0U) << what;
    EXPECT_EQ(frame, before) << what;
  };
  const auto with = [](size_t at, unsigned value) {
    Frame frame = echo_request();
    frame[at] = static_cast<uint8_t>(value);
    mend_checksum(frame);
    return frame;
  };
  refuses(with(5, 9), "another MAC address");
  refuses(with(6, 3), "a multicast sender");
  refuses(with(20, 44), "a fragment");
  refuses(with(22, 0xff), "a multicast source");
  refuses(with(53, 9), "another address");
  refuses(with(kIcmpAt, 129), "a reply");
  refuses(with(kIcmpAt + 1, 1), "another code");
  refuses(with(19, 7), "shorter than ICMPv6");
  refuses(with(19, 22), "longer than the frame");
  Frame wrong = echo_request();
  wrong.back() = 0;
  refuses(wrong, "a wrong checksum");
  const Frame whole = echo_request();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    refuses(Frame(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes)), "cut");
}

TEST(LinkAddresses, FollowTheRfcs) {
  EXPECT_EQ(link_local_gid(kOwnMac),
            (Gid{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x46, 0x4c, 0xff, 0xfe, 0, 0, 1}}));
  EXPECT_EQ(solicited_node_group(kOwnIp), kOwnGroup);
  EXPECT_EQ(multicast_mac(kOwnGroup), (MacAddress{{0x33, 0x33, 0xff, 0, 0, 1}}));
  // RFC 1112: 23 bits of the group.
  EXPECT_EQ(multicast_mac(Gid::from_ipv4(0xe0ff0102)), (MacAddress{{0x01, 0, 0x5e, 0x7f, 1, 2}}));
  EXPECT_TRUE(is_multicast(Gid::from_ipv4(0xe0000001)) && is_multicast(kAllNodes));
  EXPECT_FALSE(is_multicast(Gid::from_ipv4(0xf0000001)) || is_multicast(kOwnIp));
  EXPECT_TRUE(is_link_local(link_local_gid(kOwnMac)));
  EXPECT_FALSE(is_link_local(kOwnIp) || is_link_local(Gid::from_ipv4(1)));
}

}  // namespace
}  // namespace faultline::wire::test::link_ipv6_test
