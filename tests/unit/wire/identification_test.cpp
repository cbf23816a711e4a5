// SPDX-License-Identifier: BSD-3-Clause
// ICRCs of packets whose identification the kernel chooses, or a socket hides.
#include "stack/wire/packet/identification.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include <gtest/gtest.h>

#include "stack/wire/link/datagram.hpp"
#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/layout.hpp"
#include "tests/unit/wire/capture.hpp"
#include "tests/unit/wire/reference_packet.hpp"

namespace faultline::wire::test::identification_test {
namespace {

PathHeader socket_path() {
  PathHeader path = ipv4_path();
  path.udp_source_port = kRoceUdpPort;
  return path;
}

/// Returns the frame of identification `identification`, assembled byte by byte.
Frame numbered(uint32_t payload_bytes, uint16_t identification) {
  return plain_frame(socket_path(),
                     plain_transport(sample_fields(Opcode::rc_send_only), sample_payload(payload_bytes)),
                     identification);
}

Packet parsed(const Frame& frame) {
  Packet packet;
  EXPECT_EQ(name_of(parse(frame, packet)), "none");
  return packet;
}

constexpr std::array kLengths{0U, 1U, 4U, 63U, 64U, 301U, 1024U, 4096U};

TEST(IdentificationIcrc, RenumbersAPacketAsIfItHadBeenSealedSo) {
  IdentificationIcrc icrc;
  for (const uint32_t bytes : kLengths)
    for (uint16_t identification = 0; identification < kMostTrainPackets; ++identification) {
      Frame frame = numbered(bytes, 0);
      const auto datagram = datagram_of(frame);
      ASSERT_TRUE(datagram);
      icrc.renumber(datagram->payload, identification);
      const Frame expected = numbered(bytes, identification);
      EXPECT_TRUE(std::equal(frame.end() - kIcrcBytes, frame.end(), expected.end() - kIcrcBytes))
          << bytes << ' ' << identification;
    }
}

/// Sets the identification that a receiver assumes; the ICRC stays.
void assume(Frame& frame, uint32_t identification) {
  frame[kEthernetBytes + kIpv4IdentificationAt] = static_cast<uint8_t>(identification >> 8);
  frame[kEthernetBytes + kIpv4IdentificationAt + 1] = static_cast<uint8_t>(identification);
}

/// As a port parses what a socket received.
Packet received(const Frame& frame) {
  Packet packet;
  EXPECT_EQ(parse(frame, packet, kIpChecksumVerified), ParseError::none);
  return packet;
}

TEST(HiddenIdentification, IsTheOneThatThePacketWasSealedWith) {
  for (const uint32_t bytes : kLengths)
    for (const uint32_t assumed : {0U, 1U, 17U, 63U, 64U, 0xffffU})
      for (const uint32_t sealed : {0U, 1U, 5U, 63U, 64U, 255U, 256U, 0x1234U, 0x8000U, 0xffffU}) {
        Frame frame = numbered(bytes, static_cast<uint16_t>(sealed));
        assume(frame, assumed);
        EXPECT_EQ(hidden_identification(received(frame)), sealed) << bytes << ' ' << assumed;
      }
}

TEST(HiddenIdentification, IsFoundForEachOfTheValues) {
  for (const uint32_t bytes : {0U, 4U, 64U, 301U, 4096U}) {
    constexpr uint16_t kSealed = 0xa5c3;
    Frame frame = numbered(bytes, kSealed);
    const Packet packet = received(frame);
    // From each assumed one there is another difference.
    for (uint32_t assumed = 0; assumed <= 0xffff; ++assumed) {
      assume(frame, assumed);
      ASSERT_EQ(hidden_identification(packet), kSealed) << bytes << ' ' << assumed;
    }
  }
}

TEST(HiddenIdentification, IsFoundForEachLengthOfEachOpcode) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = opcode_info(static_cast<uint8_t>(opcode));
    if (!info.known) continue;
    for (uint32_t bytes = info.payload_min_bytes; bytes <= info.payload_max_bytes; ++bytes) {
      if (info.payload == PayloadRule::full_mtu && !std::has_single_bit(bytes)) continue;
      const FrameTemplate header(socket_path());
      PacketFields fields = sample_fields(static_cast<Opcode>(opcode));
      fields.ipv4_identification = static_cast<uint16_t>(0xbeef + bytes);
      Frame frame(header.frame_bytes(fields.bth.opcode, bytes));
      uint8_t* const payload = header.write_headers(frame, fields, bytes);
      ASSERT_NE(payload, nullptr);
      std::fill_n(payload, bytes, static_cast<uint8_t>(bytes));
      header.seal(frame, payload, bytes);
      assume(frame, 0);
      ASSERT_EQ(hidden_identification(received(frame)), fields.ipv4_identification) << opcode << ' ' << bytes;
    }
  }
}

// What Linux rxe sent, its FLUSH among it.
TEST(HiddenIdentification, IsTheOneOfEachCapturedPacket) {
  uint32_t flushes = 0;
  for (const auto& path : golden_captures())
    for (Frame frame : read_capture(path)) {
      Packet packet;
      if (classify(frame) != FrameKind::roce || parse(frame, packet) != ParseError::none || packet.ipv6)
        continue;
      const uint16_t sent = packet.ipv4_identification();
      const bool is_flush = packet.info->operation == Operation::flush;
      assume(frame, 0);
      const Packet seen = received(frame);
      if (is_flush) ++flushes;
      EXPECT_EQ(hidden_identification(seen, is_flush ? IcrcForm::rxe_flush : IcrcForm::specified), sent)
          << path;
    }
  EXPECT_GT(flushes, 0U);
}

TEST(HiddenIdentification, OnlyAFlushHasRxesForm) {
  const FrameTemplate header(socket_path());
  for (const Opcode opcode : {Opcode::rc_flush, Opcode::rc_send_only}) {
    PacketFields fields = sample_fields(opcode);
    fields.ipv4_identification = 0x1234;
    Frame frame(header.frame_bytes(opcode, 0));
    ASSERT_NE(header.write_headers(frame, fields, 0), nullptr);
    header.seal(frame, opcode, 0, IcrcForm::rxe_flush);
    assume(frame, 0);
    const auto found = hidden_identification(received(frame), IcrcForm::rxe_flush);
    EXPECT_EQ(found.value_or(0), opcode == Opcode::rc_flush ? 0x1234 : 0);
    EXPECT_EQ(found.has_value(), opcode == Opcode::rc_flush);
  }
}

TEST(HiddenIdentification, ThereIsNoneOverIpv6) {
  const Frame frame = plain_frame(ipv6_path(), plain_transport(sample_fields(Opcode::rc_send_only), {}));
  EXPECT_EQ(hidden_identification(parsed(frame)), std::nullopt);
}

// The flags are next to the identification: another value of theirs must not look like another
// identification.
TEST(HiddenIdentification, ThereIsNoneForAPacketWithOtherFlags) {
  constexpr size_t kFlagsAt = kEthernetBytes + kIpv4FragmentAt;
  for (const uint32_t bytes : kLengths)
    for (const uint8_t flags : std::array<uint8_t, 3>{0x00, 0x80, 0xc0}) {  // none, the reserved one, both
      Frame frame = numbered(bytes, 0x1234);
      frame[kFlagsAt] = flags;
      EXPECT_EQ(hidden_identification(received(frame)), std::nullopt) << bytes << ' ' << unsigned{flags};
    }
}

// An error of one byte must not look like a packet of a train.
TEST(HiddenIdentification, OfAPacketWithADamagedByteIsNoneOfATrain) {
  const Frame whole = numbered(301, 5);
  uint32_t found = 0;
  uint32_t damaged = 0;
  for (size_t at = udp_payload_offset(false) + kBthBytes; at < whole.size(); ++at)
    for (unsigned flipped = 1; flipped < 256; ++flipped) {
      Frame frame = whole;
      frame[at] ^= static_cast<uint8_t>(flipped);
      Packet packet;
      if (parse(frame, packet) != ParseError::none) continue;
      const auto identification = hidden_identification(packet);
      EXPECT_GE(identification.value_or(kMostTrainPackets), kMostTrainPackets) << at << ' ' << flipped;
      ++damaged;
      found += identification ? 1U : 0U;
    }
  // One of 65536 fits some identification.
  EXPECT_GT(damaged, 70'000U);
  EXPECT_LT(found, 20U);
}

}  // namespace
}  // namespace faultline::wire::test::identification_test
