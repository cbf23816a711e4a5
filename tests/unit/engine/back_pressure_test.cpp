// SPDX-License-Identifier: BSD-3-Clause
// A port that takes a part of the frames or none, a link that is down, a port that is not usable.
#include <algorithm>

#include "stack/wire/packet/psn.hpp"
#include "tests/unit/engine/frames.hpp"

namespace faultline::glue::test::back_pressure_test {
namespace {

constexpr TimeNs kStuckPort = 50 * kMillisecond;
constexpr uint8_t kNoTimeout = 0;

class BackPressure : public WithFrames {
 protected:
  void connect(uint8_t timeout) {
    qp_a.connect(qp_b, b, timeout);
    qp_b.connect(qp_a, a, timeout);
  }
  /// Turns of `a` while the port stays as it is.
  void run_for(TimeNs duration) {
    constexpr TimeNs kStep = 10 * kMillisecond;
    for (; duration > 0; duration -= kStep) {
      VirtualClock::advance(kStep);
      a.turn();
    }
  }
  [[nodiscard]] uint64_t dropped() const { return a.count(&PortCounts::tx_dropped); }

  Station a{"198.18.0.1/24"};
  Station b{"198.18.0.2/24"};
  TestQp qp_a{a};
  TestQp qp_b{b};
};

TEST_F(BackPressure, APortThatTakesAPartKeepsTheOrderAndLosesNothing) {
  connect(kNoTimeout);
  constexpr uint32_t kPackets = 64;  // of the path MTU, 1024 bytes
  std::fill(a.memory.bytes.begin(), a.memory.bytes.end(), uint8_t{7});
  qp_a.write(kPackets * 1024);
  uint32_t next_psn = 0;
  for (int rounds = 0; rounds < 1000 && next_psn < kPackets; ++rounds) {
    a.port.room = static_cast<size_t>(rounds % 4);
    a.turn();
    for (const Frame& frame : a.port.take_sent()) {
      ASSERT_EQ(packet_of(frame).bth.psn.value(), next_psn++);
      b.port.deliver(frame);
    }
  }
  ASSERT_EQ(next_psn, kPackets);
  a.port.room = FakePort::kUnlimited;
  settle(a, b);
  EXPECT_EQ(qp_a.sent(), succeeded(1));
  EXPECT_EQ(b.memory.bytes, a.memory.bytes);
  EXPECT_EQ(a.count(&PortCounts::tx_frames), kPackets);
  EXPECT_EQ(dropped(), 0U);
  EXPECT_EQ(a.transport().retransmitted_packets, 0U);
}

TEST_F(BackPressure, FramesWaitFiftyMillisecondsForAPortThatTakesNothingAndAreThenDropped) {
  connect(kNoTimeout);
  a.port.room = 0;
  qp_a.write(3 * 1024);
  a.turn();
  run_for(kStuckPort);
  EXPECT_EQ(dropped(), 0U);
  VirtualClock::advance(1);
  a.turn();
  EXPECT_EQ(dropped(), 3U);
  EXPECT_EQ(a.count(&PortCounts::tx_frames), 0U);
}

TEST_F(BackPressure, AFrameThatThePortTakesStartsTheFiftyMillisecondsAnew) {
  connect(kNoTimeout);
  a.port.room = 0;
  qp_a.write(3 * 1024);
  a.turn();
  run_for(kStuckPort);
  a.port.room = 1;
  a.turn();
  ASSERT_EQ(a.count(&PortCounts::tx_frames), 1U);  // the port is full again since this turn
  run_for(kStuckPort);
  EXPECT_EQ(dropped(), 0U);
  a.port.room = FakePort::kUnlimited;
  settle(a, b);
  EXPECT_EQ(qp_a.sent(), succeeded(1));
}

// A stopped process that runs again finds a port as it left it. That is no sign of a peer that is gone.
TEST_F(BackPressure, TheTimeInWhichTheProcessDidNotRunIsNotThePorts) {
  connect(kNoTimeout);
  a.port.room = 0;
  qp_a.write(3 * 1024);
  a.turn();
  VirtualClock::advance(4 * kStuckPort);
  a.turn();
  EXPECT_EQ(dropped(), 0U);
  a.port.room = FakePort::kUnlimited;
  settle(a, b);
  EXPECT_EQ(qp_a.sent(), succeeded(1));
  EXPECT_EQ(dropped(), 0U);
}

TEST_F(BackPressure, FramesForALinkThatIsDownAreDroppedAtOnceAndSentAgainLater) {
  connect(TestQp::kTimeout);
  a.port.link = false;
  qp_a.write(2 * 1024);
  a.turn();
  EXPECT_EQ(dropped(), 2U);
  EXPECT_FALSE(a.engine.port_link_up());

  a.port.link = true;
  EXPECT_TRUE(a.engine.port_link_up());
  settle(a, b);
  EXPECT_EQ(qp_a.sent(), Statuses{}) << "the timeout has not passed";
  VirtualClock::advance(2 * TestQp::kTimeoutNs);
  settle(a, b);
  EXPECT_EQ(qp_a.sent(), succeeded(1));
  EXPECT_EQ(dropped(), 2U);
}

TEST_F(BackPressure, AFullPortIsTriedWithOneFrameAndSeldomAskedForItsLink) {
  connect(kNoTimeout);
  a.port.room = 0;
  qp_a.write(3 * 1024);
  a.turn();
  EXPECT_EQ(a.port.offered, 3U);
  const unsigned looks = a.port.link_looks;
  for (int turns = 0; turns < 10; ++turns) {
    VirtualClock::advance(kMillisecond / 20);
    a.turn();
    EXPECT_EQ(a.port.offered, 1U);
  }
  EXPECT_EQ(a.port.link_looks, looks);
  VirtualClock::advance(kMillisecond);
  a.turn();
  EXPECT_EQ(a.port.link_looks, looks + 1);
  a.port.room = FakePort::kUnlimited;
  a.turn();
  EXPECT_EQ(a.count(&PortCounts::tx_frames), 3U);
  settle(a, b);
  EXPECT_EQ(qp_a.sent(), succeeded(1));
}

TEST_F(BackPressure, AnEngineThatMayNotUseItsPortLeavesItAlone) {
  connect(TestQp::kTimeout);
  a.engine.use_port(false);
  a.port.deliver(arp_request(a.gid().ipv4()));
  qp_a.write(1);
  a.turn();
  EXPECT_EQ(a.port.receive_calls + a.port.transmit_calls, 0U);
  EXPECT_EQ(dropped(), 1U);
  EXPECT_EQ(a.port.waiting(), 1U);

  a.engine.use_port(true);
  a.turn();
  EXPECT_EQ(a.count(&PortCounts::arp_in), 1U);
}

TEST_F(BackPressure, AReplyThatThePortDoesNotTakeIsDroppedAndCounted) {
  a.port.room = 0;
  a.port.deliver(arp_request(a.gid().ipv4()));
  a.turn();
  EXPECT_EQ(a.count(&PortCounts::arp_in), 1U);
  EXPECT_EQ(a.count(&PortCounts::arp_out), 0U);
  EXPECT_EQ(dropped(), 1U);
}

}  // namespace
}  // namespace faultline::glue::test::back_pressure_test
