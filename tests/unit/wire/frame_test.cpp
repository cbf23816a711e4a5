// SPDX-License-Identifier: BSD-3-Clause
// Frames built from templates, compared with frames assembled byte by byte.
#include "stack/wire/packet/frame.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "stack/wire/packet/icrc.hpp"
#include "stack/wire/packet/packet.hpp"
#include "tests/unit/wire/expected_opcodes.hpp"
#include "tests/unit/wire/meaning.hpp"
#include "tests/unit/wire/reference_packet.hpp"

namespace faultline::wire::test::frame_test {
namespace {

constexpr auto kIp = static_cast<uint8_t>(Checksums::ip_in_software);
constexpr auto kUdp = static_cast<uint8_t>(Checksums::udp_in_software);

std::vector<PathHeader> all_paths() {
  return {ipv4_path(), ipv6_path(), with_vlan(ipv4_path()), with_vlan(ipv6_path())};
}

std::vector<uint32_t> payload_lengths(const ExpectedOpcode& row) {
  if (row.full_mtu) return {256, 512, 1024, 2048, 4096};
  std::vector<uint32_t> lengths;
  for (uint32_t bytes = row.payload_min_bytes; bytes <= std::min(row.payload_max_bytes, 300U); ++bytes)
    lengths.push_back(bytes);
  if (row.payload_max_bytes > 300)
    for (const uint32_t bytes : {1021U, 1024U, 1025U, 4093U, 4094U, 4095U, 4096U}) lengths.push_back(bytes);
  return lengths;
}

size_t ip_offset(const PathHeader& path) {
  return path.has_vlan ? 18 : 14;
}

TEST(FrameTemplate, BuildsWhatThePlainWayBuilds) {
  for (const PathHeader& path : all_paths()) {
    for (const ExpectedOpcode& row : expected_opcodes()) {
      const PacketFields fields = sample_fields(static_cast<Opcode>(row.value));
      for (const uint32_t bytes : payload_lengths(row)) {
        const std::vector<uint8_t> payload = sample_payload(bytes);
        ASSERT_EQ(build(path, fields, payload),
                  plain_frame(path, plain_transport(fields, payload), fields.ipv4_identification))
            << row.name << ' ' << bytes;
      }
    }
  }
}

TEST(FrameTemplate, ACrcTakenInTheCopyMakesTheSameFrame) {
  for (const PathHeader& path : all_paths()) {
    for (const uint8_t checksums : {kIp, static_cast<uint8_t>(kIp | kUdp)}) {
      const FrameTemplate frame_template(path, checksums);
      for (const Opcode opcode : {Opcode::rc_send_only, Opcode::rc_write_only_imm, Opcode::ud_send_only}) {
        const PacketFields fields = sample_fields(opcode);
        for (uint32_t bytes = 0; bytes <= 4096; bytes += bytes < 300 ? 1 : 59) {
          const std::vector<uint8_t> payload = sample_payload(bytes);
          Frame frame(frame_template.frame_bytes(opcode, bytes), 0xee);
          uint8_t* to = frame_template.write_headers(frame, fields, bytes);
          uint32_t crc = frame_template.icrc_of_headers(frame.data(), to);
          std::ranges::copy(payload, to);
          crc = icrc_update(crc, payload);
          ASSERT_EQ(frame_template.seal_with_crc(frame, to, bytes, crc), frame.size());
          Frame sealed(frame.size(), 0xdd);
          std::ranges::copy(payload, frame_template.write_headers(sealed, fields, bytes));
          ASSERT_EQ(frame_template.seal(sealed, opcode, bytes), sealed.size());
          ASSERT_EQ(frame, sealed) << bytes;
        }
      }
    }
  }
}

TEST(Frame, ThePathOfAPacketAndItsWayBackAreTheTemplatesOfItsFrames) {
  for (const PathHeader& path : all_paths()) {
    const Frame frame = build(path, sample_fields(Opcode::rc_send_only), sample_payload(5));
    Packet packet;
    ASSERT_EQ(parse(frame, packet), ParseError::none);
    EXPECT_EQ(path_of(packet), path);
    const PathHeader back = reversed(path);
    EXPECT_EQ(back.source_mac, path.destination_mac);
    EXPECT_EQ(back.destination_gid, path.source_gid);
    EXPECT_EQ(reversed(back), path);
  }
}

TEST(Frame, AChangedPayloadHasRightSums) {
  for (const PathHeader& path : all_paths())
    for (const bool udp_checksum : {false, true})
      for (const uint32_t bytes : {1U, 4U, 77U, 1024U}) {
        const FrameTemplate frame_template(path, udp_checksum ? kIp | kUdp : kIp);
        const PacketFields fields = sample_fields(Opcode::rc_send_only);
        std::vector<uint8_t> payload = sample_payload(bytes);
        const auto made = [&] {
          Frame frame(frame_template.frame_bytes(Opcode::rc_send_only, bytes), 0);
          std::ranges::copy(payload, frame_template.write_headers(frame, fields, bytes));
          frame_template.seal(frame, Opcode::rc_send_only, bytes);
          return frame;
        };
        Frame frame = made();
        ASSERT_TRUE(change_payload(frame, false));
        payload.back() ^= 1;
        EXPECT_EQ(frame, made()) << bytes;
      }
}

TEST(Frame, APayloadIsChangedWithoutAChecksumThatThePortComputes) {
  const FrameTemplate frame_template(ipv4_path(), kIp | kUdp);
  Frame frame(frame_template.frame_bytes(Opcode::rc_send_only, 4), 0);
  const std::vector<uint8_t> payload = sample_payload(4);
  std::ranges::copy(payload, frame_template.write_headers(frame, sample_fields(Opcode::rc_send_only), 4));
  frame_template.seal(frame, Opcode::rc_send_only, 4);
  constexpr size_t kUdpChecksum = 14 + 20 + 6;
  const uint8_t before = frame[kUdpChecksum];
  ASSERT_TRUE(change_payload(frame, true));
  EXPECT_EQ(frame[kUdpChecksum], before);
}

TEST(Frame, AFrameWithoutPayloadIsNotChanged) {
  Frame frame = build(ipv4_path(), sample_fields(Opcode::rc_acknowledge), {});
  const Frame before = frame;
  EXPECT_FALSE(change_payload(frame, false));
  EXPECT_EQ(frame, before);
  Frame arp(60, 0);
  EXPECT_FALSE(change_payload(arp, false));
}

TEST(FrameTemplate, WithoutIcrcItIsZero) {
  for (const PathHeader& path : all_paths()) {
    const FrameTemplate frame_template(path, kIp | static_cast<uint8_t>(Checksums::no_icrc));
    const PacketFields fields = sample_fields(Opcode::rc_send_only);
    EXPECT_FALSE(frame_template.wants_crc_in_copy(4096));
    EXPECT_TRUE(FrameTemplate(path, kIp).wants_crc_in_copy(4096));
    for (const uint32_t bytes : {0U, 1U, 64U, 4096U}) {
      const std::vector<uint8_t> payload = sample_payload(bytes);
      Frame frame(frame_template.frame_bytes(Opcode::rc_send_only, bytes), 0xee);
      std::ranges::copy(payload, frame_template.write_headers(frame, fields, bytes));
      ASSERT_EQ(frame_template.seal(frame, Opcode::rc_send_only, bytes), frame.size());
      EXPECT_TRUE(std::all_of(frame.end() - 4, frame.end(), [](uint8_t byte) { return byte == 0; }));
      Packet packet;
      ASSERT_EQ(name_of(parse(frame, packet)), "none");
      EXPECT_FALSE(icrc_matches(packet));
      EXPECT_TRUE(std::ranges::equal(packet.payload(), payload));
    }
  }
}

TEST(FrameTemplate, WhatItBuildsMeansWhatWasAsked) {
  for (const PathHeader& path : all_paths()) {
    for (const ExpectedOpcode& row : expected_opcodes()) {
      const std::vector<uint8_t> payload = sample_payload(payload_lengths(row).back());
      const Frame frame = build(path, sample_fields(static_cast<Opcode>(row.value)), payload);
      Packet packet;
      ASSERT_EQ(name_of(parse(frame, packet)), "none") << row.name;
      EXPECT_TRUE(icrc_matches(packet));
      EXPECT_TRUE(std::ranges::equal(packet.payload(), payload));
      EXPECT_EQ(rebuild(packet), frame);
      EXPECT_EQ(packet.source_mac(), path.source_mac);
      EXPECT_EQ(packet.source_gid(), path.source_gid);
      EXPECT_EQ(packet.destination_gid(), path.destination_gid);
      EXPECT_EQ(packet.udp_source_port(), path.udp_source_port);
      EXPECT_EQ(packet.traffic_class(), path.traffic_class);
      EXPECT_EQ(packet.hop_limit(), path.hop_limit);
      EXPECT_EQ(packet.flow_label(), path.flow_label);
      EXPECT_EQ(packet.ecn, path.traffic_class & 3);
      EXPECT_EQ(packet.has_vlan, path.has_vlan);
      EXPECT_EQ(packet.vlan_tci, path.vlan_tci);
      EXPECT_EQ(packet.ipv6, !path.source_gid.is_ipv4());
    }
  }
}

TEST(FrameTemplate, ChecksumsAreTheOnesAskedFor) {
  for (const PathHeader& path : all_paths()) {
    const bool ipv6 = !path.source_gid.is_ipv4();
    for (const uint32_t bytes : {0U, 1U, 2U, 3U, 4U, 64U, 1023U, 4096U}) {
      const PacketFields fields = sample_fields(Opcode::rc_send_only);
      const std::vector<uint8_t> payload = sample_payload(bytes);
      const Frame reference = build(path, fields, payload, kIp | kUdp);
      for (const unsigned checksums : {0U, unsigned{kIp}, unsigned{kUdp}, unsigned{kIp} | kUdp}) {
        Frame frame = build(path, fields, payload, static_cast<uint8_t>(checksums));
        const std::span<uint8_t> ip = std::span(frame).subspan(ip_offset(path));
        uint8_t* udp_checksum = ip.data() + (ipv6 ? 40 : 20) + 6;
        if (!ipv6) {
          EXPECT_EQ((ip[10] | ip[11]) == 0, (checksums & kIp) == 0);
          EXPECT_EQ(plain_checksum(ip.first(20)) == 0, (checksums & kIp) != 0);
        }
        EXPECT_EQ((udp_checksum[0] | udp_checksum[1]) == 0, (checksums & kUdp) == 0);
        EXPECT_EQ(plain_udp_checksum(ip, ipv6) == 0, (checksums & kUdp) != 0);
        // The ICRC does not depend on the checksums.
        EXPECT_TRUE(std::equal(frame.end() - 4, frame.end(), reference.end() - 4));
        Packet packet;
        const ParseError expected =
            ipv6 || (checksums & kIp) != 0 ? ParseError::none : ParseError::ip_checksum;
        EXPECT_EQ(parse(frame, packet), expected);
      }
    }
  }
}

// RFC 768: a computed zero is sent as all ones. The immediate data are varied until the sum is zero.
TEST(FrameTemplate, UdpChecksumIsNeverZeroWhereItIsWanted) {
  PacketFields fields = sample_fields(Opcode::rc_send_only_imm);
  unsigned all_ones = 0;
  for (uint32_t immediate = 0; immediate < 1000000 && all_ones == 0; ++immediate) {
    fields.immediate = immediate;
    const Frame frame = build(ipv4_path(), fields, {}, kIp | kUdp);
    const unsigned checksum = unsigned{frame[40]} << 8 | frame[41];
    ASSERT_NE(checksum, 0U);
    if (checksum != 0xffff) continue;
    ++all_ones;
    Packet packet;
    EXPECT_EQ(parse(frame, packet), ParseError::none);
  }
  EXPECT_EQ(all_ones, 1U);
}

// The incremental IPv4 checksum is correct for every sum of constant part, length and identification.
TEST(FrameTemplate, Ipv4ChecksumIsRightForAnyIdentification) {
  PacketFields fields = sample_fields(Opcode::rc_send_only);
  for (uint32_t identification = 0; identification < 65536; ++identification) {
    fields.ipv4_identification = static_cast<uint16_t>(identification);
    std::array<uint8_t, 128> frame;
    ASSERT_NE(FrameTemplate(ipv4_path()).write_headers(frame, fields, identification % 8), nullptr);
    ASSERT_EQ(plain_checksum(std::span(frame).subspan(14, 20)), 0) << identification;
  }
}

TEST(FrameTemplate, RefusesABufferThatIsTooSmallAndLeavesItAlone) {
  for (const PathHeader& path : all_paths()) {
    const FrameTemplate frame_template(path);
    for (const ExpectedOpcode& row : expected_opcodes()) {
      const PacketFields fields = sample_fields(static_cast<Opcode>(row.value));
      const uint32_t payload_bytes = row.payload_min_bytes;
      const uint32_t needed = frame_template.frame_bytes(fields.bth.opcode, payload_bytes);
      for (uint32_t room = 0; room < needed; ++room) {
        // Exactly this length on the heap, for AddressSanitizer.
        Frame frame(room, uint8_t{0x77});
        ASSERT_EQ(frame_template.write_headers(frame, fields, payload_bytes), nullptr);
        ASSERT_EQ(std::count(frame.begin(), frame.end(), 0x77), room);
      }
      Frame frame(needed);
      EXPECT_NE(frame_template.write_headers(frame, fields, payload_bytes), nullptr);
    }
  }
}

TEST(FrameTemplate, LongestFrameFitsTheStatedBound) {
  for (const PathHeader& path : all_paths())
    for (const ExpectedOpcode& row : expected_opcodes())
      EXPECT_LE(FrameTemplate(path).frame_bytes(static_cast<Opcode>(row.value), row.payload_max_bytes),
                kMaxFrameBytes);
}

TEST(Icrc, StateChainsAtAnyCut) {
  const std::vector<uint8_t> bytes = sample_payload(700);
  const uint32_t whole = plain_crc32(bytes);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const uint32_t state = icrc_update(kIcrcStart, std::span(bytes).first(cut));
    ASSERT_EQ(icrc_update(state, std::span(bytes).subspan(cut)), whole) << cut;
  }
}

TEST(Icrc, EqualsTheBitwiseOneAtEveryLengthAndAlignment) {
  std::vector<IcrcFold> folds;
  for (const FoldWidth width : {FoldWidth::narrow, FoldWidth::wide})
    if (const IcrcFold fold = icrc_fold_of(width); fold.is_there()) folds.push_back(fold);
  for (const PathHeader& path : {ipv4_path(), ipv6_path()}) {
    const bool ipv6 = !path.source_gid.is_ipv4();
    for (uint32_t bytes = 0; bytes <= 600; ++bytes) {
      const Frame frame =
          plain_frame(path, plain_transport(sample_fields(Opcode::rc_send_only), sample_payload(bytes)));
      const std::span<const uint8_t> ip = std::span(frame).subspan(14, frame.size() - 18);
      // In a separate allocation: an access beyond either end is detected.
      const size_t shift = bytes % 16;
      std::vector<uint8_t> shifted(shift);
      shifted.insert(shifted.end(), ip.begin(), ip.end());
      const std::span<const uint8_t> packet = std::span<const uint8_t>(shifted).subspan(shift);
      const uint32_t right = plain_icrc(ip, ipv6);
      ASSERT_EQ(icrc_of_ip_packet(packet, ipv6), right) << bytes;
      ASSERT_EQ(icrc_of_received(packet, ipv6), right) << bytes;
      ASSERT_EQ(icrc_by_library(packet, ipv6), right) << bytes;
      if (packet.size() > kMaxFoldedIpBytes) continue;
      for (const IcrcFold& fold : folds) {
        ASSERT_EQ(fold.of_written[ipv6 ? 1 : 0](packet), right) << bytes;
        ASSERT_EQ(fold.of_received[ipv6 ? 1 : 0](packet), right) << bytes;
      }
    }
  }
}

TEST(Icrc, EveryBitCountsOrIsMasked) {
  for (const PathHeader& path : {ipv4_path(), ipv6_path()}) {
    const bool ipv6 = !path.source_gid.is_ipv4();
    for (const uint32_t bytes : {0U, 4U, 8U, 12U, 64U}) {
      const Frame frame =
          plain_frame(path, plain_transport(sample_fields(Opcode::rc_write_only), sample_payload(bytes)));
      const std::span<const uint8_t> ip = std::span(frame).subspan(14, frame.size() - 18);
      std::vector<uint8_t> changed(ip.begin(), ip.end());
      for (size_t bit = 0; bit < 8 * ip.size(); ++bit) {
        changed[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
        ASSERT_EQ(icrc_of_ip_packet(changed, ipv6), plain_icrc(changed, ipv6)) << bytes << ' ' << bit;
        ASSERT_EQ(icrc_of_received(changed, ipv6), plain_icrc(changed, ipv6)) << bytes << ' ' << bit;
        changed[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
      }
    }
  }
}

}  // namespace
}  // namespace faultline::wire::test::frame_test
