// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/link/link.hpp"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "stack/wire/packet/frame.hpp"
#include "tests/unit/wire/capture.hpp"
#include "tests/unit/wire/meaning.hpp"
#include "tests/unit/wire/reference_packet.hpp"

namespace faultline::wire::test::link_test {
namespace {

constexpr MacAddress kOwnMac{{0x02, 0x46, 0x4c, 0, 0, 1}};
constexpr MacAddress kPeerMac{{0x02, 0x46, 0x4c, 0, 0, 2}};
constexpr uint32_t kOwnIp = 0xc6120001;
constexpr uint32_t kPeerIp = 0xc6120002;
const std::array<Gid, 2> kOwn{Gid::from_ipv4(0xc6120007), Gid::from_ipv4(kOwnIp)};

/// "who has 198.18.0.1, tell 198.18.0.2", as bytes.
Frame arp_request() {
  return {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0x46, 0x4c, 0, 0, 2, 0x08, 0x06, 0, 1, 8, 0,   6,  4, 0,
          1,    0x02, 0x46, 0x4c, 0,    0,    2,    198,  18,   0, 2, 0, 0,    0,    0, 0, 0, 198, 18, 0, 1};
}

/// An echo request from the peer to this device, with correct checksums.
Frame echo_request(size_t data_bytes = 13) {
  Frame frame{0x02, 0x46, 0x4c, 0, 0, 1, 0x02, 0x46, 0x4c, 0, 0, 2, 0x08, 0x00};
  const auto total_bytes = static_cast<uint8_t>(28 + data_bytes);
  const Frame headers{0x45, 0, 0,   total_bytes, 0x12, 0x34, 0x40, 0, 7, 1, 0,    0,    198, 18,
                      0,    2, 198, 18,          0,    1,    8,    0, 0, 0, 0x56, 0x78, 0,   1};
  frame.insert(frame.end(), headers.begin(), headers.end());
  const std::vector<uint8_t> data = sample_payload(data_bytes);
  frame.insert(frame.end(), data.begin(), data.end());
  return frame;
}

void mend_checksums(Frame& frame) {
  const auto mend = [&frame](size_t at, size_t from, size_t bytes) {
    frame[at] = frame[at + 1] = 0;
    const uint16_t checksum = plain_checksum(std::span(frame).subspan(from, bytes));
    frame[at] = static_cast<uint8_t>(checksum >> 8);
    frame[at + 1] = static_cast<uint8_t>(checksum);
  };
  mend(24, 14, 20);
  mend(36, 34, frame.size() - 34);
}

TEST(Gid, IsIpv4OnlyWithTheWholePrefix) {
  const Gid mapped = Gid::from_ipv4(0xc6120001);
  EXPECT_TRUE(mapped.is_ipv4());
  EXPECT_TRUE(Gid::from_ipv4(0xffffffff).is_ipv4());
  for (size_t bit = 0; bit < 96; ++bit) {
    Gid other = mapped;
    other.bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    EXPECT_FALSE(other.is_ipv4()) << "bit " << bit;
  }
}

TEST(Arp, ReadsARequest) {
  ArpPacket packet;
  ASSERT_TRUE(parse_arp(arp_request(), packet));
  EXPECT_EQ(packet.operation, ArpOperation::request);
  EXPECT_EQ(packet.sender_mac, kPeerMac);
  EXPECT_EQ(packet.sender_ip, kPeerIp);
  EXPECT_EQ(packet.target_ip, kOwnIp);
}

TEST(Arp, WritesWhatItReads) {
  ArpPacket packet;
  ASSERT_TRUE(parse_arp(arp_request(), packet));
  Frame frame(kMinFrameBytes, uint8_t{0xa5});
  ASSERT_EQ(build_arp(frame, packet, kBroadcastMac), kMinFrameBytes);
  Frame padded = arp_request();
  padded.resize(kMinFrameBytes);
  EXPECT_EQ(frame, padded);
  Frame small(kMinFrameBytes - 1);
  EXPECT_EQ(build_arp(small, packet, kBroadcastMac), 0U);
}

/// The frame with a tag of VLAN 100, priority 3.
Frame tagged(Frame frame) {
  const Frame tag{0x81, 0x00, 0x60, 100};
  frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  return frame;
}

TEST(Arp, WearsAVlanTag) {
  ArpPacket packet;
  ASSERT_TRUE(parse_arp(tagged(arp_request()), packet));
  EXPECT_EQ(packet.target_ip, kOwnIp);
  Frame frame(kMinFrameBytes, uint8_t{0xa5});
  ASSERT_EQ(build_arp(frame, packet, kBroadcastMac, {true, vlan_tci(100, 3)}), kMinFrameBytes);
  Frame padded = tagged(arp_request());
  padded.resize(kMinFrameBytes);
  EXPECT_EQ(frame, padded);
  for (size_t bytes = 0; bytes < tagged(arp_request()).size(); ++bytes) {
    const Frame whole = tagged(arp_request());
    EXPECT_FALSE(parse_arp(Frame(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes)), packet));
  }
}

TEST(Arp, RefusesWhatIsNotIpv4OverEthernetFromAUnicastSender) {
  ArpPacket packet;
  for (size_t bytes = 0; bytes < arp_request().size(); ++bytes) {
    const Frame whole = arp_request();
    EXPECT_FALSE(parse_arp(Frame(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes)), packet))
        << bytes;
  }
  // EtherType, types and lengths of the addresses, operation
  for (const size_t at : {13, 15, 17, 18, 19, 20}) {
    Frame frame = arp_request();
    frame[at] = static_cast<uint8_t>(frame[at] ^ 0x40);
    EXPECT_FALSE(parse_arp(frame, packet)) << at;
  }
  Frame multicast = arp_request();
  multicast[22] = 0x03;
  EXPECT_FALSE(parse_arp(multicast, packet));
}

TEST(Echo, IsAnsweredInPlace) {
  for (const size_t data_bytes : {0, 1, 56, 200}) {
    Frame frame = echo_request(data_bytes);
    mend_checksums(frame);
    const Frame request = frame;
    frame.resize(std::max<size_t>(frame.size(), kMinFrameBytes));  // as padded by Ethernet
    ASSERT_EQ(answer_echo(frame, kOwnMac, kOwn), request.size());
    Frame expected = request;
    std::copy(kPeerMac.bytes.begin(), kPeerMac.bytes.end(), expected.begin());
    std::copy(kOwnMac.bytes.begin(), kOwnMac.bytes.end(), expected.begin() + 6);
    std::swap_ranges(expected.begin() + 26, expected.begin() + 30, expected.begin() + 30);
    expected[22] = 64;
    expected[34] = 0;
    mend_checksums(expected);
    frame.resize(request.size());
    EXPECT_EQ(frame, expected);
  }
}

TEST(Echo, IsAnsweredWithTheTagItCameWith) {
  Frame untagged = echo_request();
  mend_checksums(untagged);
  Frame frame = tagged(untagged);
  ASSERT_EQ(answer_echo(untagged, kOwnMac, kOwn), frame.size() - 4);
  ASSERT_EQ(answer_echo(frame, kOwnMac, kOwn), frame.size());
  EXPECT_EQ(frame, tagged(untagged));
}

TEST(Echo, NothingElseIsAnsweredOrTouched) {
  const auto refuses = [](Frame frame, const char* what) {
    const Frame before = frame;
    EXPECT_EQ(answer_echo(frame, kOwnMac, kOwn), 0U) << what;
    EXPECT_EQ(frame, before) << what;
  };
  const auto with = [](size_t at, unsigned value) {
    Frame frame = echo_request();
    frame[at] = static_cast<uint8_t>(value);
    mend_checksums(frame);
    return frame;
  };
  refuses(with(5, 9), "another MAC address");
  refuses(with(6, 0x03), "a multicast sender");
  refuses(with(13, 0x06), "not IPv4");
  refuses(with(14, 0x46), "options");
  refuses(with(20, 0x20), "a fragment");
  refuses(with(23, 17), "not ICMP");
  refuses(with(26, 0xe0), "a multicast source");
  refuses(with(26, 127), "a loopback source");
  refuses(with(33, 9), "another address");
  refuses(with(34, 0), "an echo reply");
  refuses(with(17, 27), "shorter than ICMP");
  refuses(with(16, 1), "longer than the frame");
  Frame good = echo_request();
  mend_checksums(good);
  for (const size_t at : {24, 36}) {
    Frame frame = good;
    frame[at] = static_cast<uint8_t>(frame[at] ^ 1);
    refuses(frame, "a wrong checksum");
  }
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    refuses(Frame(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes)), "cut");
}

// A frame of the longest kind with payload fits at the returned path MTU, and does not fit at the next one.
TEST(PathMtu, IsTheLargestThatFits) {
  constexpr uint32_t kXrcBytes = 4;  // XRC adds one header
  for (const PathHeader& path : {ipv4_path(), ipv6_path()}) {
    const bool ipv6 = !path.source_gid.is_ipv4();
    const FrameTemplate frame_template(path);
    for (uint32_t mtu_bytes = 0; mtu_bytes <= 9000; ++mtu_bytes) {
      uint32_t expected = 0;
      for (const uint32_t path_mtu : {256U, 512U, 1024U, 2048U, 4096U})
        if (frame_template.frame_bytes(Opcode::rc_write_only_imm, path_mtu) + kXrcBytes - 14 <= mtu_bytes)
          expected = path_mtu;
      ASSERT_EQ(largest_path_mtu_bytes(mtu_bytes, ipv6), expected) << mtu_bytes;
    }
  }
}

// The result of a NIC on the prepared frame (the sum from the UDP header on) must be the complete checksum.
TEST(ChecksumOffload, LeavesThePseudoHeadersSum) {
  for (const PathHeader& path : {ipv4_path(), ipv6_path(), with_vlan(ipv4_path()), with_vlan(ipv6_path())}) {
    const bool ipv6 = !path.source_gid.is_ipv4();
    const size_t ip_at = path.has_vlan ? 18 : 14;
    const size_t udp_at = ip_at + (ipv6 ? 40 : 20);
    Frame frame = build(path, sample_fields(Opcode::rc_send_only), sample_payload(77));
    const uint16_t whole = plain_udp_checksum(std::span(frame).subspan(ip_at), ipv6);
    const OffloadLayout layout = prepare_checksum_offload(frame, {.ipv4 = true, .udp = true});
    EXPECT_EQ(layout.layer2_bytes, ip_at);
    EXPECT_EQ(layout.layer2_bytes + layout.layer3_bytes, udp_at);
    EXPECT_EQ(layout.ipv6, ipv6);
    EXPECT_EQ(plain_checksum(std::span(frame).subspan(udp_at)), whole);
    EXPECT_TRUE(ipv6 || (frame[ip_at + 10] | frame[ip_at + 11]) == 0);
  }
}

// virtio-net and vmxnet3 compute UDP checksums only: the IPv4 checksum on the wire is the frame's own.
TEST(ChecksumOffload, KeepsTheIpv4ChecksumThatThePortDoesNotCompute) {
  for (const PathHeader& path : {ipv4_path(), with_vlan(ipv4_path())}) {
    const size_t ip_at = path.has_vlan ? 18 : 14;
    for (const bool udp : {false, true}) {
      Frame frame = build(path, sample_fields(Opcode::rc_send_only), sample_payload(77));
      const Frame before = frame;
      ASSERT_NE(frame[ip_at + 10] | frame[ip_at + 11], 0);
      static_cast<void>(prepare_checksum_offload(frame, {.udp = udp}));
      const auto header_of = [&](const Frame& of) { return std::vector(&of[ip_at], &of[ip_at] + 20); };
      EXPECT_EQ(header_of(frame), header_of(before));
      if (!udp) continue;
      EXPECT_EQ(plain_checksum(std::span(frame).subspan(ip_at + 20)),
                plain_udp_checksum(std::span<const uint8_t>(before).subspan(ip_at), false));
    }
  }
}

// ... and a port that computes IPv4 checksums only leaves UDP's.
TEST(ChecksumOffload, KeepsTheUdpChecksumThatThePortDoesNotCompute) {
  for (const PathHeader& path : {ipv4_path(), ipv6_path()}) {
    const size_t udp_at = 14 + (path.source_gid.is_ipv4() ? 20 : 40);
    Frame frame = build(path, sample_fields(Opcode::rc_send_only), sample_payload(77));
    const Frame before = frame;
    static_cast<void>(prepare_checksum_offload(frame, {.ipv4 = true}));
    EXPECT_TRUE(std::equal(frame.begin() + static_cast<std::ptrdiff_t>(udp_at), frame.end(),
                           before.begin() + static_cast<std::ptrdiff_t>(udp_at), before.end()));
  }
}

}  // namespace
}  // namespace faultline::wire::test::link_test
