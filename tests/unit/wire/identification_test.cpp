// SPDX-License-Identifier: BSD-3-Clause
// ICRCs of packets whose identification the kernel chooses.
#include "stack/wire/packet/identification.hpp"

#include <gtest/gtest.h>

#include "stack/wire/link/datagram.hpp"
#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/layout.hpp"
#include "tests/unit/wire/reference_packet.hpp"

namespace faultline::wire::test {
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
void assume(Frame& frame, uint16_t identification) {
  frame[kEthernetBytes + kIpv4IdentificationAt] = static_cast<uint8_t>(identification >> 8);
  frame[kEthernetBytes + kIpv4IdentificationAt + 1] = static_cast<uint8_t>(identification);
}

TEST(IdentificationIcrc, FindsTheIdentificationThatASocketHid) {
  IdentificationIcrc icrc;
  for (const uint32_t bytes : kLengths)
    for (const uint32_t assumed : {0U, 1U, 17U, 63U})
      for (uint16_t identification = 0; identification < kMostTrainPackets; ++identification) {
        Frame frame = numbered(bytes, identification);
        assume(frame, static_cast<uint16_t>(assumed));
        EXPECT_EQ(icrc.find([&] {
          Packet packet;
          EXPECT_EQ(parse(frame, packet, kIpChecksumVerified), ParseError::none);
          return packet;
        }()),
                  identification);
      }
}

TEST(IdentificationIcrc, FindsNoneForAnIdentificationThatNoTrainHas) {
  IdentificationIcrc icrc;
  for (const uint32_t identification : {kMostTrainPackets, 256U, 0xffffU}) {
    Frame frame = numbered(301, static_cast<uint16_t>(identification));
    EXPECT_EQ(icrc.find(parsed(frame)), kMostTrainPackets);
    assume(frame, 0);
    Packet packet;
    ASSERT_EQ(parse(frame, packet, kIpChecksumVerified), ParseError::none);
    EXPECT_EQ(icrc.find(packet), kMostTrainPackets);
  }
}

// An error of one byte must not look like another identification.
TEST(IdentificationIcrc, NoDamagedByteIsTakenForAnotherIdentification) {
  IdentificationIcrc icrc;
  const Frame whole = numbered(301, 5);
  for (size_t at = udp_payload_offset(false) + kBthBytes; at < whole.size(); ++at)
    for (unsigned flipped = 1; flipped < 256; ++flipped) {
      Frame frame = whole;
      frame[at] ^= static_cast<uint8_t>(flipped);
      Packet packet;
      if (parse(frame, packet) != ParseError::none) continue;
      EXPECT_EQ(icrc.find(packet), kMostTrainPackets) << at << ' ' << flipped;
    }
}

}  // namespace
}  // namespace faultline::wire::test
