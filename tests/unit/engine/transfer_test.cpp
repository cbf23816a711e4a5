// SPDX-License-Identifier: BSD-3-Clause
// Two engines that exchange frames: completion, retransmission in virtual time, checksum offloads.
#include <algorithm>
#include <numeric>

#include <rte_mbuf.h>

#include "stack/base/clock.hpp"
#include "stack/wire/packet/checksum.hpp"
#include "tests/unit/engine/frames.hpp"

namespace faultline::glue::test::transfer_test {
namespace {

class Transfer : public WithFrames {};

/// A tick of the timer wheel; a deadline is met within it.
constexpr TimeNs kTickNs = 8'192;

/// Two stations with a connected QP each.
struct Joined {
  Joined() {
    qp_a.connect(qp_b, b);
    qp_b.connect(qp_a, a);
    std::iota(a.memory.bytes.begin(), a.memory.bytes.end(), uint8_t{1});
  }
  Station a{"198.18.0.1/24"};
  Station b{"198.18.0.2/24"};
  TestQp qp_a{a};
  TestQp qp_b{b};
};

TEST_F(Transfer, TheProductsClockStandsStillUntilATestAdvancesIt) {
  const TimeNs before = monotonic_ns();
  EXPECT_EQ(before, VirtualClock::now());
  VirtualClock::advance(5);
  EXPECT_EQ(monotonic_ns(), before + 5);
}

TEST_F(Transfer, AWriteBetweenTwoEnginesCompletes) {
  Joined pair;
  pair.qp_a.write(10'000);
  settle(pair.a, pair.b);
  EXPECT_EQ(pair.qp_a.sent(), succeeded(1));
  EXPECT_TRUE(std::equal(pair.a.memory.bytes.begin(), pair.a.memory.bytes.begin() + 10'000,
                         pair.b.memory.bytes.begin()));
  EXPECT_EQ(pair.b.memory.bytes[10'000], 0);
  EXPECT_EQ(pair.a.count(&PortCounts::tx_frames), 10U) << "path MTU 1024";
  EXPECT_EQ(pair.b.count(&PortCounts::rx_frames), 10U);
  EXPECT_EQ(pair.a.transport().retransmitted_packets, 0U);
}

TEST_F(Transfer, ATurnReportsWhetherFramesMoved) {
  Joined pair;
  EXPECT_FALSE(pair.a.turn());
  pair.qp_a.write(1);
  EXPECT_TRUE(pair.a.turn()) << "sent";
  EXPECT_FALSE(pair.a.turn());
  ASSERT_EQ(carry(pair.a, pair.b), 1U);
  EXPECT_TRUE(pair.b.turn()) << "received";
  EXPECT_FALSE(pair.b.turn());
}

TEST_F(Transfer, ALostFrameIsSentAgainWhenItsTimeoutHasPassed) {
  Joined pair;
  const TimeNs posted = VirtualClock::now();
  pair.qp_a.write(100);
  settle(pair.a, pair.b, [](const Frame& frame) { return opcode_of(frame) == wire::Opcode::rc_write_only; });
  ASSERT_EQ(pair.qp_a.sent(), Statuses{});

  VirtualClock::advance_to(posted + TestQp::kTimeoutNs - 1);
  settle(pair.a, pair.b);
  EXPECT_EQ(pair.a.transport().timeouts, 0U);
  EXPECT_LE(pair.a.engine.next_deadline(), posted + TestQp::kTimeoutNs + kTickNs);
  VirtualClock::advance_to(posted + TestQp::kTimeoutNs + kTickNs);
  settle(pair.a, pair.b);
  EXPECT_EQ(pair.a.transport().timeouts, 1U);
  EXPECT_EQ(pair.a.transport().retransmitted_packets, 1U);
  EXPECT_EQ(pair.qp_a.sent(), succeeded(1));
  EXPECT_EQ(pair.b.memory.bytes[99], pair.a.memory.bytes[99]);
}

TEST_F(Transfer, TheDevicesSmallestTimeoutDelaysTheRetransmission) {
  constexpr TimeNs kLeastNs = 5 * TestQp::kTimeoutNs;
  Station a(StationSetup{.min_ack_timeout_ns = kLeastNs});
  Station b{"198.18.0.2/24"};
  TestQp qp_a(a);
  TestQp qp_b(b);
  qp_a.connect(qp_b, b);
  qp_b.connect(qp_a, a);
  qp_a.write(100);
  settle(a, b, [](const Frame&) { return true; });
  VirtualClock::advance(kLeastNs - 1);
  settle(a, b);
  EXPECT_EQ(a.transport().timeouts, 0U);
  VirtualClock::advance(kTickNs + 1);
  settle(a, b);
  EXPECT_EQ(a.transport().timeouts, 1U);
  EXPECT_EQ(qp_a.sent(), succeeded(1));
}

TEST_F(Transfer, ALostAckIsReplacedAndTheWriteCompletesOnce) {
  Joined pair;
  pair.qp_a.write(100);
  settle(pair.a, pair.b, [](const Frame& frame) { return opcode_of(frame) == wire::Opcode::rc_acknowledge; });
  ASSERT_EQ(pair.qp_a.sent(), Statuses{});
  VirtualClock::advance(2 * TestQp::kTimeoutNs);
  settle(pair.a, pair.b);
  EXPECT_EQ(pair.qp_a.sent(), succeeded(1));
  EXPECT_EQ(pair.b.transport().duplicate_requests, 1U);
}

TEST_F(Transfer, AnEmptyPoolOnlyDelaysFrames) {
  Joined pair;
  std::vector<rte_mbuf*> taken;
  while (rte_mbuf* const frame = rte_pktmbuf_alloc(pool())) taken.push_back(frame);
  pair.qp_a.write(3'000);
  pair.a.turn();
  EXPECT_EQ(pair.a.count(&PortCounts::tx_frames), 0U);
  EXPECT_GT(pair.a.transport().tx_no_buffers, 0U);
  rte_pktmbuf_free_bulk(taken.data(), static_cast<unsigned>(taken.size()));
  settle(pair.a, pair.b);
  EXPECT_EQ(pair.qp_a.sent(), succeeded(1));
}

TEST_F(Transfer, APortThatComputesChecksumsIsAskedForThem) {
  Station a(StationSetup{.offloads = {.ipv4_checksum = true, .udp_checksum = true}, .udp_checksum = true});
  Station b{"198.18.0.2/24"};
  TestQp qp_a(a);
  TestQp qp_b(b);
  qp_a.connect(qp_b, b);
  qp_a.write(100);
  a.turn();
  EXPECT_EQ(a.port.sent_flags,
            std::vector<uint64_t>{RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_UDP_CKSUM});
  qp_b.connect(qp_a, a);
  qp_b.write(100);
  b.turn();
  EXPECT_EQ(b.port.sent_flags, std::vector<uint64_t>{0}) << "a port without offloads";
}

// virtio-net and vmxnet3: what the port does not compute is in the frame.
TEST_F(Transfer, APortThatComputesUdpChecksumsAloneGetsAnIpv4Checksum) {
  Station a(StationSetup{.offloads = {.udp_checksum = true}, .udp_checksum = true});
  Station b{"198.18.0.2/24"};
  TestQp qp_a(a);
  TestQp qp_b(b);
  qp_a.connect(qp_b, b);
  qp_a.write(100);
  a.turn();
  EXPECT_EQ(a.port.sent_flags, std::vector<uint64_t>{RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_UDP_CKSUM});
  const std::vector<Frame> sent = a.port.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(wire::fold_sum(wire::ones_sum(std::span(sent[0]).subspan(14, 20))), 0xffff);
}

}  // namespace
}  // namespace faultline::glue::test::transfer_test
