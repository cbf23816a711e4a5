// SPDX-License-Identifier: BSD-3-Clause
// Frames that a device sends to itself: to its own address, and to a multicast group that it has joined.
#include "tests/unit/engine/frames.hpp"

namespace faultline::glue::test::loopback_test {
namespace {

class Loopback : public WithFrames {
 protected:
  void run_turns(int turns) {
    for (int i = 0; i < turns; ++i) station.turn();
  }

  Station station{"198.18.0.1/24"};
};

TEST_F(Loopback, MessagesToTheDeviceItselfDoNotUseThePort) {
  TestQp one(station);
  TestQp other(station);
  one.connect(other, station);
  other.connect(one, station);
  other.post_receive();
  one.send();
  run_turns(4);
  EXPECT_EQ(other.received(), succeeded(1));
  EXPECT_EQ(one.sent(), succeeded(1));
  EXPECT_EQ(station.port.transmit_calls, 0U);
  EXPECT_EQ(station.count(&PortCounts::loopback_frames), 2U) << "the SEND and its ACK";
  EXPECT_EQ(station.count(&PortCounts::rx_frames) + station.count(&PortCounts::tx_frames), 0U);
}

TEST_F(Loopback, MessagesToTheDeviceItselfNeedNoLink) {
  TestQp qp(station);
  qp.connect(qp, station);
  qp.post_receive();
  station.port.link = false;
  qp.send();
  run_turns(4);
  EXPECT_EQ(qp.received(), succeeded(1));
  EXPECT_EQ(qp.sent(), succeeded(1));
  EXPECT_EQ(station.count(&PortCounts::tx_dropped), 0U);
}

TEST_F(Loopback, FramesOnTheirWayToTheDeviceItselfAreFreedWithTheEngine) {
  TestQp qp(station);
  qp.connect(qp, station);
  qp.send();
  station.turn();
  // The fixture compares the pool when the station is gone.
}

class OwnGroup : public Loopback {
 protected:
  void SetUp() override {
    Loopback::SetUp();
    qp.activate();
    ASSERT_TRUE(station.engine.filter().join(group));
    ASSERT_EQ(station.engine.core().attach_multicast(qp.get(), group), 0);
    qp.post_receive();
    qp.post_receive();
  }
  void send_to_group() {
    transport::AddressVector to = station.path_to(station);
    to.loopback = false;
    to.path.destination_gid = group;
    to.path.destination_mac = wire::multicast_mac(group);
    qp.send_datagram(to, wire::kMulticastQpn);
  }

  const wire::Gid group = wire::Gid::from_ipv4(0xe0000105);  // 224.0.1.5
  TestQp qp{station, transport::QpType::ud};
};

TEST_F(OwnGroup, ADatagramToAJoinedGroupIsSentAndDeliveredToTheSendersDevice) {
  send_to_group();
  run_turns(2);
  EXPECT_EQ(station.port.take_sent().size(), 1U);
  EXPECT_EQ(qp.received(), succeeded(1));
  EXPECT_EQ(station.count(&PortCounts::rx_frames), 0U) << "not by the port";
  EXPECT_EQ(station.count(&PortCounts::loopback_frames), 1U);
}

TEST_F(OwnGroup, ADatagramThatWaitsForThePortIsDeliveredOnce) {
  station.port.room = 0;
  send_to_group();
  run_turns(3);
  EXPECT_EQ(qp.received(), Statuses{});
  station.port.room = FakePort::kUnlimited;
  run_turns(3);
  EXPECT_EQ(station.port.take_sent().size(), 1U);
  EXPECT_EQ(qp.received(), succeeded(1));
}

TEST_F(OwnGroup, ADatagramToAGroupThatTheDeviceHasLeftIsOnlySent) {
  station.engine.filter().leave(group);
  send_to_group();
  run_turns(3);
  EXPECT_EQ(station.port.take_sent().size(), 1U);
  EXPECT_EQ(qp.received(), Statuses{});
}

}  // namespace
}  // namespace faultline::glue::test::loopback_test
