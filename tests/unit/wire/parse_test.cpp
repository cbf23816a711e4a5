// SPDX-License-Identifier: BSD-3-Clause
// Malicious and malformed frames.
#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "stack/wire/packet/packet.hpp"
#include "tests/unit/wire/expected_opcodes.hpp"
#include "tests/unit/wire/meaning.hpp"
#include "tests/unit/wire/reference_packet.hpp"

namespace faultline::wire::test::parse_test {
namespace {

constexpr uint32_t kUdpBthBytes = 20;
constexpr unsigned kAllVerified = unsigned{kIpChecksumVerified} | kUdpChecksumVerified;

ParseError parse_error(const Frame& frame, unsigned rx_checks = kNothingVerified) {
  Packet packet;
  return parse(frame, packet, static_cast<uint8_t>(rx_checks));
}

bool accepted(const Frame& frame) {
  Packet packet;
  return parse(frame, packet) == ParseError::none && icrc_matches(packet);
}

/// Returns a frame with the UDP length `udp_bytes` and consistent lengths and checksums, with any opcode and
/// pad count.
Frame forged(const PathHeader& path, uint8_t opcode, uint32_t udp_bytes, uint32_t pad_bytes,
             uint32_t icrc_xor = 0) {
  std::vector<uint8_t> transport = sample_payload(udp_bytes < 12 ? 0 : udp_bytes - 12);
  if (transport.size() >= 2) {
    transport[0] = opcode;
    transport[1] = static_cast<uint8_t>(pad_bytes << 4);
  }
  return plain_frame(path, transport, 0, icrc_xor);
}

/// Recomputes the IPv4 header checksum after a change.
void mend_ipv4_checksum(Frame& frame) {
  frame[24] = frame[25] = 0;
  const uint16_t checksum = plain_checksum(std::span(frame).subspan(14, 20));
  frame[24] = static_cast<uint8_t>(checksum >> 8);
  frame[25] = static_cast<uint8_t>(checksum);
}

Frame golden_like_frame(const PathHeader& path = ipv4_path()) {
  return build(path, sample_fields(Opcode::rc_write_only_imm), sample_payload(66));
}

/// Returns `frame` with `change` applied and the IPv4 checksum recomputed.
template <typename Change>
Frame changed(Frame frame, Change change) {
  change(frame);
  mend_ipv4_checksum(frame);
  return frame;
}

// CVE-2026-46133: an opcode without a table entry caused a length underflow.
TEST(Parse, EveryOpcodeAtEveryUdpLength) {
  for (const PathHeader& path : {ipv4_path(), ipv6_path()}) {
    for (unsigned opcode = 0; opcode < 256; ++opcode) {
      for (uint32_t udp_bytes = 12; udp_bytes <= 200; ++udp_bytes) {
        for (const uint32_t icrc_xor : {0U, 1U}) {
          const Frame frame = forged(path, static_cast<uint8_t>(opcode), udp_bytes, 0, icrc_xor);
          const bool valid = expected_valid(static_cast<uint8_t>(opcode), udp_bytes, 0);
          ASSERT_EQ(parse_error(frame) == ParseError::none, valid) << opcode << ' ' << udp_bytes;
          ASSERT_EQ(accepted(frame), valid && icrc_xor == 0) << opcode << ' ' << udp_bytes;
          ASSERT_EQ(check_parse(frame), "");
        }
      }
    }
  }
}

// The same for datagrams without room for an ICRC, or with a length below that of a UDP header.
TEST(Parse, UdpLengthsBelowAnyPacket) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    for (uint32_t udp_bytes = 0; udp_bytes < 24; ++udp_bytes) {
      Frame frame = forged(ipv4_path(), static_cast<uint8_t>(opcode), 64, 0);
      frame[17] = static_cast<uint8_t>(20 + udp_bytes);
      frame[39] = static_cast<uint8_t>(udp_bytes);
      mend_ipv4_checksum(frame);
      ASSERT_EQ(parse_error(frame), udp_bytes < 8 ? ParseError::udp_length : ParseError::header_length);
      frame.resize(34 + udp_bytes);
      ASSERT_NE(parse_error(frame), ParseError::none);
      ASSERT_EQ(check_parse(frame), "");
    }
  }
}

// CVE-2026-46043: a pad count larger than the available bytes caused an underflow of the payload length.
TEST(Parse, EveryPadCountAtThePayloadsEdges) {
  for (const PathHeader& path : {ipv4_path(), ipv6_path()}) {
    for (const ExpectedOpcode& row : expected_opcodes()) {
      const uint32_t header_bytes = kUdpBthBytes + row.extended_bytes + 4;
      for (const uint32_t base : {header_bytes, header_bytes + 256, header_bytes + 4096}) {
        for (uint32_t udp_bytes = base - 4; udp_bytes <= base + 8; ++udp_bytes) {
          for (uint32_t pad_bytes = 0; pad_bytes < 4; ++pad_bytes) {
            const Frame frame = forged(path, row.value, udp_bytes, pad_bytes);
            ASSERT_EQ(accepted(frame), expected_valid(row.value, udp_bytes, pad_bytes))
                << row.name << ' ' << udp_bytes << ' ' << pad_bytes;
            ASSERT_EQ(check_parse(frame), "");
          }
        }
      }
    }
  }
}

// CVE-2026-46114: an ATOMIC WRITE carries exactly eight bytes, whatever its RETH contains.
TEST(Parse, AtomicWriteCarriesEightBytes) {
  constexpr uint32_t kHeaderBytes = kUdpBthBytes + 16 + 4;
  for (uint32_t payload_bytes = 0; payload_bytes <= 64; ++payload_bytes)
    for (uint32_t pad_bytes = 0; pad_bytes < 4; ++pad_bytes)
      EXPECT_EQ(accepted(forged(ipv4_path(), 0x1d, kHeaderBytes + payload_bytes, pad_bytes)),
                payload_bytes == 8 && pad_bytes == 0);
}

TEST(Parse, FullMtuPacketsCarryAPathMtu) {
  for (const ExpectedOpcode& row : expected_opcodes()) {
    if (!row.full_mtu) continue;
    for (uint32_t payload_bytes = 0; payload_bytes <= 4200; payload_bytes += 4) {
      const bool is_mtu = payload_bytes == 256 || payload_bytes == 512 || payload_bytes == 1024 ||
                          payload_bytes == 2048 || payload_bytes == 4096;
      const Frame frame =
          forged(ipv4_path(), row.value, kUdpBthBytes + row.extended_bytes + payload_bytes + 4, 0);
      ASSERT_EQ(parse_error(frame), is_mtu ? ParseError::none : ParseError::payload_length)
          << row.name << payload_bytes;
    }
  }
}

/// Returns whether a flip of the bit may be undetected: the ICRC masks it and no other check covers it.
bool is_masked(const PathHeader& path, size_t byte, unsigned bit) {
  const bool ipv6 = !path.source_gid.is_ipv4();
  const size_t ip = path.has_vlan ? 18 : 14;
  if (byte < 12) return true;  // MAC addresses: covered by the Ethernet FCS
  if (path.has_vlan && (byte == 14 || byte == 15)) return true;
  const size_t udp = ip + (ipv6 ? 40 : 20);
  if (byte == udp + 8 + 4) return true;  // FECN, BECN and reserved
  if (!ipv6) return false;               // the header checksum covers what the ICRC masks
  return (byte == ip && bit < 4) || (byte > ip && byte < ip + 4) || byte == ip + 7;
}

TEST(Parse, EverySingleBitFlipIsCaught) {
  for (const PathHeader& path : {ipv4_path(), ipv6_path(), with_vlan(ipv4_path()), with_vlan(ipv6_path())}) {
    const Frame good = golden_like_frame(path);
    ASSERT_TRUE(accepted(good));
    for (size_t byte = 0; byte < good.size(); ++byte) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        Frame frame = good;
        frame[byte] = static_cast<uint8_t>(frame[byte] ^ 1U << bit);
        ASSERT_EQ(accepted(frame), is_masked(path, byte, bit)) << byte << '.' << bit;
        ASSERT_EQ(check_parse(frame), "");
      }
    }
  }
}

/// Most frames take the fast path; a frame with a VLAN tag always takes the slow path. Both must give the
/// same result.
TEST(Parse, WhatIsSeenAtAGlanceIsWhatTheLongWaySays) {
  const auto tagged = [](const Frame& frame) {
    Frame with_tag = frame;
    const std::array<uint8_t, 4> tag = {0x81, 0x00, 0x00, 0x05};
    with_tag.insert(with_tag.begin() + 12, tag.begin(), tag.end());
    return with_tag;
  };
  const auto compare = [&tagged](const Frame& frame, unsigned rx_checks, const std::string& what) {
    Packet seen;
    Packet looked_at;
    const Frame long_way = tagged(frame);
    const auto checks = static_cast<uint8_t>(rx_checks);
    const ParseError error = parse(frame, seen, checks);
    ASSERT_EQ(error, parse(long_way, looked_at, checks)) << what;
    if (error != ParseError::none) return;
    EXPECT_EQ(seen.info, looked_at.info) << what;
    EXPECT_EQ(seen.ecn, looked_at.ecn) << what;
    EXPECT_EQ(seen.payload_offset + 4, looked_at.payload_offset) << what;
    EXPECT_EQ(seen.payload_bytes, looked_at.payload_bytes) << what;
    EXPECT_EQ(seen.icrc_offset + 4, looked_at.icrc_offset) << what;
    EXPECT_EQ(std::memcmp(&seen.bth, &looked_at.bth, sizeof seen.bth), 0) << what;
  };
  const Frame good = golden_like_frame();
  for (const unsigned rx_checks : {unsigned{kNothingVerified}, kAllVerified}) {
    for (size_t bit = 14 * 8; bit < (good.size() - 70) * 8; ++bit) {
      const auto flip = [bit](Frame& frame) { frame[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8)); };
      Frame flipped = good;
      flip(flipped);
      compare(flipped, rx_checks, "bit " + std::to_string(bit));
      compare(changed(good, flip), rx_checks, "bit and checksum " + std::to_string(bit));
    }
    for (size_t bytes = 18; bytes <= good.size(); ++bytes)
      compare(Frame(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes)), rx_checks,
              "cut at " + std::to_string(bytes));
  }
}

TEST(Parse, EveryTruncationIsCaught) {
  for (const PathHeader& path : {ipv4_path(), ipv6_path(), with_vlan(ipv4_path()), with_vlan(ipv6_path())}) {
    const Frame good = golden_like_frame(path);
    for (size_t bytes = 0; bytes < good.size(); ++bytes) {
      const Frame frame(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes));
      ASSERT_NE(parse_error(frame), ParseError::none) << bytes;
      ASSERT_NE(parse_error(frame, kAllVerified), ParseError::none) << bytes;
      ASSERT_EQ(check_parse(frame), "");
    }
  }
}

TEST(Parse, EthernetPaddingIsIgnored) {
  for (const PathHeader& path : {ipv4_path(), ipv6_path(), with_vlan(ipv4_path())}) {
    const Frame good = build(path, sample_fields(Opcode::rc_send_only), {});
    for (size_t more = 0; more <= 64; ++more) {
      Frame frame = good;
      frame.resize(good.size() + more, uint8_t{0xee});
      Packet packet;
      ASSERT_EQ(parse(frame, packet), ParseError::none);
      EXPECT_TRUE(icrc_matches(packet));
      EXPECT_EQ(packet.payload_bytes, 0);
      EXPECT_EQ(rebuild(packet), good);
    }
  }
}

TEST(Parse, EachReasonIsNamed) {
  const Frame good = golden_like_frame();
  const auto error = [&good](auto change) { return name_of(parse_error(changed(good, change))); };
  EXPECT_EQ(error([](Frame&) {}), "none");
  EXPECT_EQ(error([](Frame& f) { f[12] = 0x88; }), "not_ip");
  EXPECT_EQ(error([](Frame& f) { f[14] = 0x55; }), "ip_header");
  EXPECT_EQ(error([](Frame& f) { f[14] = 0x46; }), "ip_header");
  EXPECT_EQ(error([](Frame& f) { f[14] = 0x44; }), "ip_header");
  EXPECT_EQ(error([](Frame& f) { f[20] = 0x20; }), "ip_fragment");
  EXPECT_EQ(error([](Frame& f) { f[21] = 0x01; }), "ip_fragment");
  EXPECT_EQ(error([](Frame& f) { f[20] = 0x00; }), "none");  // don't-fragment is optional for the sender
  EXPECT_EQ(error([](Frame& f) { f[16] = 0x7f; }), "ip_length");
  EXPECT_EQ(error([](Frame& f) { f[16] = 0, f[17] = 19; }), "ip_length");
  EXPECT_EQ(error([](Frame& f) { f[23] = 6; }), "not_udp");
  EXPECT_EQ(error([](Frame& f) { f[37] ^= 1; }), "udp_port");
  EXPECT_EQ(error([](Frame& f) { f[39] ^= 4; }), "udp_length");
  EXPECT_EQ(error([](Frame& f) { f[40] = 0x12; }), "udp_checksum");
  EXPECT_EQ(error([](Frame& f) { f[43] |= 0x01; }), "bth_version");
  EXPECT_EQ(error([](Frame& f) { f[42] = 0xff; }), "unknown_opcode");
  EXPECT_EQ(error([](Frame& f) { f[42] = 0x0d; }), "pad_count");
  EXPECT_EQ(error([](Frame& f) { f[42] = 0x0c, f[43] = 0; }), "payload_length");

  // One word shorter than the opcode's headers and ICRC.
  for (const ExpectedOpcode& row : expected_opcodes())
    EXPECT_EQ(parse_error(forged(ipv4_path(), row.value, kUdpBthBytes + row.extended_bytes, 0)),
              ParseError::header_length)
        << row.name;

  // An empty SEND with a pad count.
  EXPECT_EQ(parse_error(forged(ipv4_path(), 0x04, kUdpBthBytes + 4, 1)), ParseError::pad_count);

  Frame bad_sum = good;
  bad_sum[24] = static_cast<uint8_t>(bad_sum[24] ^ 0x80);
  EXPECT_EQ(parse_error(bad_sum), ParseError::ip_checksum);
  EXPECT_EQ(parse_error(bad_sum, kIpChecksumVerified), ParseError::none);
  Frame bad_udp_sum = good;
  bad_udp_sum[41] = 1;
  EXPECT_EQ(parse_error(bad_udp_sum), ParseError::udp_checksum);
  EXPECT_EQ(parse_error(bad_udp_sum, kUdpChecksumVerified), ParseError::none);
  EXPECT_EQ(parse_error(Frame(13)), ParseError::runt);
}

TEST(Parse, Ipv6ReasonsAreNamed) {
  const Frame good = golden_like_frame(ipv6_path());
  const auto error = [&good](auto change) {
    Frame frame = good;
    change(frame);
    return name_of(parse_error(frame));
  };
  EXPECT_EQ(error([](Frame&) {}), "none");
  EXPECT_EQ(error([](Frame& f) { f[14] = 0x40; }), "ip_header");
  for (const uint8_t extension :
       std::initializer_list<uint8_t>{0, 43, 44, 50, 51, 60, 135})  // RFC 8200 section 4: extension headers
    EXPECT_EQ(error([extension](Frame& f) { f[20] = extension; }), "not_udp");
  EXPECT_EQ(error([](Frame& f) { f[18] = 0xff; }), "ip_length");
  EXPECT_EQ(error([](Frame& f) { f[18] = f[19] = 0; }), "udp_length");  // zero, as for a jumbogram
  EXPECT_EQ(error([](Frame& f) { f[58] ^= 1; }), "udp_length");
  EXPECT_EQ(error([](Frame& f) { f[60] = 0x12; }), "udp_checksum");
}

// An IPv6 packet from ::ffff:a.b.c.d would have the GID of the IPv4 peer a.b.c.d. Found by the fuzzer.
TEST(Parse, Ipv4MappedAddressesAreNotTakenOverIpv6) {
  const Gid mapped = ipv4_path().source_gid;
  for (const size_t at : {14 + 8, 14 + 24}) {
    Frame frame = golden_like_frame(ipv6_path());
    std::copy(mapped.bytes.begin(), mapped.bytes.end(), frame.begin() + static_cast<ptrdiff_t>(at));
    EXPECT_EQ(parse_error(frame), ParseError::ip_header);
    frame[at + 9] = 1;  // only the exact prefix
    EXPECT_EQ(parse_error(frame), ParseError::none);
  }
}

TEST(Parse, AGroupIsKnownByItsAddress) {
  const auto is_multicast = [](PathHeader path, const Gid& destination) {
    path.destination_gid = destination;
    const Frame frame = golden_like_frame(path);
    Packet packet;
    EXPECT_EQ(parse(frame, packet), ParseError::none);
    return packet.is_multicast();
  };
  for (const uint32_t group : {0xe0000001U, 0xefffffffU})
    EXPECT_TRUE(is_multicast(ipv4_path(), Gid::from_ipv4(group))) << std::hex << group;
  for (const uint32_t host : {0xc6120001U, 0xdfffffffU})
    EXPECT_FALSE(is_multicast(ipv4_path(), Gid::from_ipv4(host))) << std::hex << host;
  Gid ipv6 = ipv6_path().destination_gid;
  EXPECT_FALSE(is_multicast(ipv6_path(), ipv6));
  ipv6.bytes[0] = 0xff;
  EXPECT_TRUE(is_multicast(ipv6_path(), ipv6));
}

TEST(Parse, EveryErrorHasItsOwnName) {
  std::set<std::string_view> names;
  for (unsigned error = 0; error < static_cast<unsigned>(ParseError::count_); ++error)
    EXPECT_TRUE(names.insert(name_of(static_cast<ParseError>(error))).second);
  EXPECT_FALSE(names.contains(name_of(ParseError::count_)));
}

TEST(Classify, SortsFramesByWhereTheyBelong) {
  EXPECT_EQ(classify(golden_like_frame(ipv4_path())), FrameKind::roce);
  EXPECT_EQ(classify(golden_like_frame(ipv6_path())), FrameKind::roce);
  EXPECT_EQ(classify(golden_like_frame(with_vlan(ipv4_path()))), FrameKind::roce);
  EXPECT_EQ(classify(golden_like_frame(with_vlan(ipv6_path()))), FrameKind::roce);
  Frame frame = golden_like_frame();
  frame[37] ^= 1;
  EXPECT_EQ(classify(frame), FrameKind::ipv4_other);
  frame = golden_like_frame();
  frame[23] = 1;  // ICMP
  EXPECT_EQ(classify(frame), FrameKind::ipv4_other);
  frame = golden_like_frame(ipv6_path());
  frame[20] = 58;  // ICMPv6
  EXPECT_EQ(classify(frame), FrameKind::ipv6_other);
  frame[12] = 0x08, frame[13] = 0x06;
  EXPECT_EQ(classify(frame), FrameKind::arp);
  frame[13] = 0x35;
  EXPECT_EQ(classify(frame), FrameKind::other);
  for (size_t bytes = 0; bytes < 14; ++bytes) EXPECT_EQ(classify(Frame(bytes)), FrameKind::other);
}

TEST(Grh, HoldsTheIpHeader) {
  for (const PathHeader& path : {ipv4_path(), ipv6_path(), with_vlan(ipv4_path())}) {
    const Frame frame = build(path, sample_fields(Opcode::ud_send_only), sample_payload(10));
    Packet packet;
    ASSERT_EQ(parse(frame, packet), ParseError::none);
    std::array<uint8_t, kGrhBytes> grh;
    grh.fill(0x99);
    packet.write_grh(grh);
    const size_t ip_bytes = packet.ipv6 ? 40 : 20;
    EXPECT_TRUE(std::equal(grh.end() - static_cast<ptrdiff_t>(ip_bytes), grh.end(),
                           frame.begin() + packet.ip_offset));
    EXPECT_EQ(std::count(grh.begin(), grh.end() - static_cast<ptrdiff_t>(ip_bytes), 0),
              40 - static_cast<ptrdiff_t>(ip_bytes));
  }
}

}  // namespace
}  // namespace faultline::wire::test::parse_test
