// SPDX-License-Identifier: BSD-3-Clause
// Messages near the maximum length, 2^31 bytes (IBA 9.7.4.1.6), and near the largest length that a RETH can
// encode. Memory of such a length repeats the bytes of a short region.
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::message_length_test {
namespace {

using transport::CompletionStatus;
using transport::QpState;
using transport::QpType;
using transport::SendOpcode;

constexpr uint32_t kLongest = 1U << 31;
constexpr uint32_t kFirstPsn = 100;

ConnectionScript impatient() {
  ConnectionScript connection;
  connection.timeout = 8;  // 1 ms
  connection.retry_count = 1;
  return connection;
}

struct LongPair : Pair {
  LongPair() : Pair(quiet_fabric(), impatient()) {
    pinned_a.extent_bytes = pinned_b.extent_bytes = uint64_t{8} << 30;
  }
  void post(SendOpcode opcode, uint32_t length) {
    EXPECT_TRUE(a.post_send(request(opcode, pinned_a, length, &pinned_b)));
  }
  /// Runs `events` events: a message of 2^31 bytes has millions of them.
  void step(int events) {
    for (int i = 0; i < events; ++i)
      if (!simulation.step()) return;
  }
};

std::vector<uint32_t> too_long() {
  return {kLongest + 1, 0xc000'0000U, 0xffff'ffffU - 1024, 0xffff'ffffU - 1023, 0xffff'ffffU};
}

// One request packet for 2^32 - 1 bytes produced an endless response: its packet count overflowed to 0.
TEST(Length, ARequestBeyondTheLongestMessageIsRefused) {
  for (const wire::Opcode opcode : {wire::Opcode::rc_read_request, wire::Opcode::rc_write_first})
    for (const uint32_t length : too_long()) {
      SCOPED_TRACE(testing::Message() << "opcode " << static_cast<int>(opcode) << " length " << length);
      LongPair pair;
      const std::vector<uint8_t> before = pair.pinned_b.bytes;
      wire::PacketFields fields;
      fields.bth.opcode = opcode;
      fields.bth.psn = wire::Psn(kFirstPsn);
      fields.reth = {pair.pinned_b.base, pair.pinned_b.key, length};
      pair.forge(pair.simulation.a, pair.b.qpn(), fields, opcode == wire::Opcode::rc_read_request ? 0 : 1024);
      pair.step(2000);
      EXPECT_EQ(pair.b.state(), QpState::err);
      EXPECT_EQ(pair.counters_b().naks_sent, 1U);
      EXPECT_EQ(pair.counters_b().tx_packets, 1U) << "the NAK alone";
      EXPECT_EQ(pair.lines().back().substr(0, 15), "b> ACK 100 NAK1");
      EXPECT_EQ(pair.pinned_b.bytes, before);
    }
}

TEST(Length, ARequesterHearsOfIt) {
  for (const SendOpcode opcode : {SendOpcode::rdma_read, SendOpcode::rdma_write})
    for (const uint32_t length : too_long()) {
      SCOPED_TRACE(testing::Message() << "opcode " << static_cast<int>(opcode) << " length " << length);
      LongPair pair;
      pair.post(opcode, length);
      pair.step(20'000);
      EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::remote_invalid_request});
    }
}

TEST(Length, TheLongestMessageItselfIsServed) {
  for (const SendOpcode opcode : {SendOpcode::rdma_read, SendOpcode::rdma_write}) {
    SCOPED_TRACE(static_cast<int>(opcode));
    LongPair pair;
    pair.post(opcode, kLongest);
    pair.step(20'000);
    EXPECT_EQ(pair.b.state(), QpState::rts);
    EXPECT_EQ(pair.counters_a().naks_received, 0U);
    EXPECT_GT(pair.simulation.trace.entries().size(), 1000U);
    EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 65536));
    EXPECT_TRUE(pair.a.poll_sends().empty());
  }
}

TEST(Length, AnUnreliableWriteBeyondItIsDropped) {
  for (const uint32_t length : too_long()) {
    LongPair pair;
    Endpoint from(pair.simulation, pair.simulation.a, {.type = QpType::uc});
    Endpoint to(pair.simulation, pair.simulation.b, {.type = QpType::uc});
    ASSERT_TRUE(connect(pair.simulation, from, to, {}));
    const std::vector<uint8_t> before = pair.pinned_b.bytes;
    wire::PacketFields fields;
    fields.bth.opcode = wire::Opcode::uc_write_first;
    fields.bth.psn = wire::Psn(kFirstPsn);
    fields.reth = {pair.pinned_b.base, pair.pinned_b.key, length};
    pair.forge(pair.simulation.a, to.qpn(), fields, 1024);
    pair.run();
    EXPECT_EQ(pair.pinned_b.bytes, before) << length;
    EXPECT_EQ(pair.counters_b().drops[static_cast<size_t>(transport::DropReason::payload_rule)], 1U);
    EXPECT_EQ(to.state(), QpState::rts);
  }
}

}  // namespace
}  // namespace faultline::sim::message_length_test
