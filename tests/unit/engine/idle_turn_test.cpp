// SPDX-License-Identifier: BSD-3-Clause
// A turn without work enters no memory session and does not poll the core.
#include "tests/unit/engine/frames.hpp"

namespace faultline::glue::test::idle_turn_test {
namespace {

class IdleTurn : public WithFrames {
 protected:
  void SetUp() override {
    WithFrames::SetUp();
    qp.connect(peer_qp, peer);
    peer_qp.connect(qp, station);
    settle(station, peer);
    entered_before = station.memory.entered;
  }

  [[nodiscard]] unsigned entered() const { return station.memory.entered - entered_before; }

  Station station{"198.18.0.1/24"};
  Station peer{"198.18.0.2/24"};
  TestQp qp{station};
  TestQp peer_qp{peer};
  unsigned entered_before = 0;
};

TEST_F(IdleTurn, LeavesTheMemoryAlone) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(station.turn());
  EXPECT_FALSE(station.turn_of_program());
  EXPECT_EQ(entered(), 0U);
}

// A dedicated thread stays in the session from turn to turn. A thread that removes memory would wait for it.
TEST_F(IdleTurn, EndsTheSessionOfTheTurnBefore) {
  qp.send();
  station.engine.turn();
  ASSERT_TRUE(station.memory.is_online);
  station.engine.turn();
  EXPECT_FALSE(station.memory.is_online);
}

TEST_F(IdleTurn, IsNoneIfWorkIsPosted) {
  qp.write(64);
  EXPECT_TRUE(station.turn());
  EXPECT_EQ(station.port.take_sent().size(), 1U);
  EXPECT_EQ(entered(), 1U);
}

TEST_F(IdleTurn, IsNoneIfAFrameArrives) {
  peer_qp.write(64);
  peer.turn();
  ASSERT_EQ(carry(peer, station), 1U);
  EXPECT_TRUE(station.turn());
  EXPECT_EQ(entered(), 1U) << "once for the frame and its acknowledgement";
}

TEST_F(IdleTurn, IsNoneIfATimerIsDue) {
  qp.write(64);
  station.turn();
  ASSERT_EQ(station.port.take_sent().size(), 1U) << "this frame is lost";
  VirtualClock::advance(TestQp::kTimeoutNs / 2);
  EXPECT_FALSE(station.turn());
  VirtualClock::advance(2 * TestQp::kTimeoutNs);
  EXPECT_TRUE(station.turn());
  EXPECT_EQ(station.port.take_sent().size(), 1U);
}

TEST_F(IdleTurn, IsNoneIfAPageIsAwaited) {
  station.memory.has_faults = true;
  station.turn();
  EXPECT_EQ(entered(), 1U);
}

}  // namespace
}  // namespace faultline::glue::test::idle_turn_test
