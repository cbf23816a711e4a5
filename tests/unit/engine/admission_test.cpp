// SPDX-License-Identifier: BSD-3-Clause
// Received frames that are not the device's, or not in one buffer.
#include <algorithm>
#include <numeric>

#include "pmd_glue/eal/frame_pool.hpp"
#include "tests/unit/engine/frames.hpp"

namespace faultline::glue::test::admission_test {
namespace {

constexpr uint32_t kNoQpn = 0x777777;

class Admission : public WithFrames {
 protected:
  /// Delivers a frame and runs a turn. Returns whether the transport received it.
  static bool reaches_transport(Station& station, const Frame& frame) {
    const uint64_t before = station.transport().rx_packets;
    station.port.deliver(frame);
    station.turn();
    return station.transport().rx_packets == before + 1;
  }
};

TEST_F(Admission, FramesForOtherAddressesAreDroppedAndCounted) {
  Station station("198.18.0.1/24");
  EXPECT_TRUE(reaches_transport(station, roce_frame(station, kNoQpn)));
  EXPECT_EQ(station.count(&PortCounts::wrong_address), 0U);
  EXPECT_FALSE(reaches_transport(
      station, roce_frame(station, kNoQpn, [](wire::PathHeader& path) { path.destination_mac = kPeerMac; })));
  EXPECT_EQ(station.count(&PortCounts::wrong_address), 1U) << "another MAC address";
  EXPECT_FALSE(reaches_transport(station, roce_frame(station, kNoQpn, [](wire::PathHeader& path) {
                                   path.destination_gid = wire::Gid::from_ipv4(0xc6120007);
                                 })));
  EXPECT_EQ(station.count(&PortCounts::wrong_address), 2U) << "another IP address";
  EXPECT_FALSE(reaches_transport(station, roce_frame(station, kNoQpn, [](wire::PathHeader& path) {
                                   path.destination_gid = wire::Gid::from_ipv4(0xe0000105);
                                   path.destination_mac = wire::multicast_mac(path.destination_gid);
                                 })));
  EXPECT_EQ(station.count(&PortCounts::wrong_address), 3U) << "a group that was not joined";
  EXPECT_EQ(station.count(&PortCounts::wrong_vlan), 0U);
}

TEST_F(Admission, FramesOfOtherVlansAreDroppedAndCounted) {
  Station station(StationSetup{.vlan_id = 100});
  const auto with_vlan = [&](uint16_t id) {
    return roce_frame(station, kNoQpn, [id](wire::PathHeader& path) {
      path.has_vlan = true;
      path.vlan_tci = id;
    });
  };
  EXPECT_TRUE(reaches_transport(station, with_vlan(100)));
  EXPECT_FALSE(reaches_transport(station, with_vlan(101)));
  EXPECT_FALSE(reaches_transport(station, roce_frame(station, kNoQpn)));
  EXPECT_EQ(station.count(&PortCounts::wrong_vlan), 2U);
  EXPECT_EQ(station.count(&PortCounts::wrong_address), 0U);
}

TEST_F(Admission, FramesOfOtherProtocolsAreDroppedAndCounted) {
  Station station("198.18.0.1/24");
  Frame frame = roce_frame(station, kNoQpn);
  wire::write_probe_header(frame, kPeerMac);
  std::copy(station.mac().bytes.begin(), station.mac().bytes.end(), frame.begin());
  EXPECT_FALSE(reaches_transport(station, frame));
  EXPECT_EQ(station.count(&PortCounts::other_dropped), 1U);
}

TEST_F(Admission, AFrameInSeveralBuffersIsMadeContiguous) {
  Station a("198.18.0.1/24");
  Station b("198.18.0.2/24");
  TestQp qp_a(a);
  TestQp qp_b(b);
  qp_a.connect(qp_b, b);
  qp_b.connect(qp_a, a);
  std::iota(a.memory.bytes.begin(), a.memory.bytes.end(), uint8_t{1});
  qp_a.write(900);
  a.turn();
  for (const Frame& frame : a.port.take_sent()) b.port.deliver(frame, 100);
  settle(a, b);
  EXPECT_EQ(qp_a.sent(), succeeded(1));
  EXPECT_EQ(b.count(&PortCounts::linearized_frames), 1U);
  EXPECT_TRUE(std::equal(a.memory.bytes.begin(), a.memory.bytes.begin() + 900, b.memory.bytes.begin()));
}

TEST_F(Admission, AFrameLongerThanABufferIsDroppedAndCountedAndTheOthersAreNot) {
  Station station("198.18.0.1/24");
  station.port.deliver(roce_frame(station, kNoQpn));
  station.port.deliver(Frame(kBufferBytes + 1), 2'000);
  station.port.deliver(roce_frame(station, kNoQpn), 30);
  station.turn();
  EXPECT_EQ(station.count(&PortCounts::rx_frames), 3U);
  EXPECT_EQ(station.count(&PortCounts::other_dropped), 1U);
  EXPECT_EQ(station.count(&PortCounts::linearized_frames), 1U);
  EXPECT_EQ(station.transport().rx_packets, 2U);
}

}  // namespace
}  // namespace faultline::glue::test::admission_test
