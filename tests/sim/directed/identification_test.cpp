// SPDX-License-Identifier: BSD-3-Clause
// A peer that counts the IPv4 identifications of its packets, and a core that receives by a socket, which
// hides them.
#include <algorithm>
#include <array>

#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/icrc.hpp"
#include "stack/wire/packet/layout.hpp"
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::identification_test {
namespace {

using transport::CompletionStatus;

constexpr size_t kIdentificationAt = wire::kEthernetBytes + wire::kIpv4IdentificationAt;
constexpr size_t kChecksumAt = wire::kEthernetBytes + wire::kIpv4ChecksumAt;

/// Sets the identification and a right IP checksum.
void set_identification(Frame& frame, uint16_t identification) {
  const uint16_t before = wire::load_be16(&frame[kIdentificationAt]);
  wire::store_be16(&frame[kIdentificationAt], identification);
  // RFC 1624, equation 3.
  uint32_t sum = static_cast<uint16_t>(~wire::load_be16(&frame[kChecksumAt]));
  sum += static_cast<uint16_t>(~before);
  sum += identification;
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  wire::store_be16(&frame[kChecksumAt], static_cast<uint16_t>(~sum));
}

/// Seals the frame for its identification; `rxe_flush`: a FLUSH as rxe seals it (wire::has_rxe_flush_icrc).
void seal(Frame& frame, bool rxe_flush) {
  wire::Packet packet;
  ASSERT_EQ(wire::parse(frame, packet), wire::ParseError::none);
  const auto from = [&](size_t at) { return std::span(frame).subspan(at, packet.icrc_offset - at); };
  uint32_t icrc = wire::icrc_by_library(from(packet.ip_offset), false);
  if (rxe_flush && packet.info->operation == wire::Operation::flush)
    icrc = wire::icrc_update(icrc, from(packet.bth_offset));
  wire::store_le32(&frame[packet.icrc_offset], icrc);
}

/// A sender that numbers its packets, and a socket that hides the numbers.
class Numbering {
 public:
  explicit Numbering(uint16_t first) : next_(first) {}
  void operator()(Frame& frame) {
    set_identification(frame, next_++);
    seal(frame, rxe_flush);
    if (damages_next) frame[frame.size() - 9] ^= 0x10;
    damages_next = false;
    set_identification(frame, 0);
  }
  void skip(uint16_t count) { next_ = static_cast<uint16_t>(next_ + count); }
  bool damages_next = false;
  bool rxe_flush = false;

 private:
  uint16_t next_;
};

/// `a` is such a sender; `b` receives by a socket.
SimulationScript numbered_fabric(Numbering& numbering) {
  SimulationScript script = quiet_fabric();
  script.a_to_b.change = [&numbering](Frame& frame) { numbering(frame); };
  script.b.core.wire_checksums |= static_cast<uint8_t>(wire::Checksums::by_socket);
  return script;
}

uint64_t refused(const transport::CoreCounters& counters, wire::ParseError error) {
  return counters.parse_errors[static_cast<size_t>(error)];
}

TEST(Identification, OnePacketOfAPeerIsLostUntilItsCounterIsKnown) {
  for (const uint16_t first : std::array<uint16_t, 5>{64, 1000, 0x7fff, 0xff00, 0xffff}) {
    Numbering numbering(first);
    Pair pair(numbered_fabric(numbering));
    for (int message = 0; message < 20; ++message) {
      pair.write(20'001);
      pair.read(5'000);
      pair.run();
    }
    EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 20'001)) << first;
    EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses(40, CompletionStatus::success));
    EXPECT_EQ(refused(pair.counters_b(), wire::ParseError::identification), 1U) << first;
    EXPECT_EQ(refused(pair.counters_b(), wire::ParseError::icrc), 0U) << first;
    EXPECT_EQ(refused(pair.counters_a(), wire::ParseError::icrc), 0U) << first;
  }
}

TEST(Identification, BelowThoseOfATrainNoPacketIsLost) {
  Numbering numbering(0);
  Pair pair(numbered_fabric(numbering));
  pair.write(1'024 * 50);
  pair.run();
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 1'024 * 50));
  EXPECT_EQ(refused(pair.counters_b(), wire::ParseError::identification), 0U);
}

TEST(Identification, OnlyAPortThatHidesItLearnsOne) {
  Numbering numbering(1000);
  SimulationScript script = numbered_fabric(numbering);
  script.b.core.wire_checksums = 1;
  Pair pair(script);
  const std::vector<uint8_t> before = pair.pinned_b.bytes;
  pair.write(1000);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::retry_exceeded});
  EXPECT_EQ(pair.pinned_b.bytes, before);
  EXPECT_EQ(refused(pair.counters_b(), wire::ParseError::identification), 0U);
  EXPECT_GT(refused(pair.counters_b(), wire::ParseError::icrc), 0U);
}

TEST(Identification, AJumpOfTheCounterCostsOnePacket) {
  Numbering numbering(1000);
  Pair pair(numbered_fabric(numbering));
  for (int jump = 0; jump < 10; ++jump) {
    pair.write(3'000);
    pair.run();
    numbering.skip(20'000);
  }
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses(10, CompletionStatus::success));
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 3'000));
  EXPECT_EQ(refused(pair.counters_b(), wire::ParseError::identification), 10U);
}

TEST(Identification, ADamagedPacketIsNotAccepted) {
  Numbering numbering(1000);
  Pair pair(numbered_fabric(numbering));
  pair.write(3'000);
  pair.run();
  const uint64_t before = refused(pair.counters_b(), wire::ParseError::icrc);
  for (int message = 0; message < 100; ++message) {
    numbering.damages_next = true;
    std::fill_n(pair.pinned_a.bytes.begin(), 3'000, static_cast<uint8_t>(message));
    pair.write(3'000);
    pair.run();
    EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 3'000));
  }
  EXPECT_EQ(refused(pair.counters_b(), wire::ParseError::icrc) - before, 100U);
  EXPECT_EQ(refused(pair.counters_b(), wire::ParseError::identification), 1U);
}

TEST(Identification, RxesFlushIsAcceptedIfTheConfigurationAllowsIt) {
  for (const bool allowed : {false, true}) {
    Numbering numbering(1000);
    numbering.rxe_flush = true;
    SimulationScript script = numbered_fabric(numbering);
    script.b.core.rxe_flush_icrc = allowed;
    Pair pair(script);
    pair.write(1'000);
    SendRequest flush;
    flush.opcode = transport::SendOpcode::flush;
    flush.remote_va = pair.pinned_b.base;
    flush.rkey = pair.pinned_b.key;
    flush.fill = [](transport::SendWqe& wqe) {
      wqe.flush_placement = 1;
      wqe.length_bytes = 1'000;
    };
    EXPECT_TRUE(pair.a.post_send(flush));
    pair.run();
    EXPECT_EQ(Pair::statuses(pair.a.poll_sends()),
              (Statuses{CompletionStatus::success,
                        allowed ? CompletionStatus::success : CompletionStatus::retry_exceeded}));
    EXPECT_EQ(pair.simulation.b.memory.flushes, allowed ? 1U : 0U);
    EXPECT_EQ(refused(pair.counters_b(), wire::ParseError::icrc) == 0, allowed);
  }
}

}  // namespace
}  // namespace faultline::sim::identification_test
