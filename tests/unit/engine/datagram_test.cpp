// SPDX-License-Identifier: BSD-3-Clause
// Datagrams of one QP to several destinations.
#include <algorithm>

#include "tests/unit/engine/frames.hpp"

namespace faultline::glue::test::datagram_test {
namespace {

using Datagrams = WithFrames;

TEST_F(Datagrams, EachTakesThePathOfItsOwnAddressVector) {
  Station station("198.18.0.1/24");
  const Station first("198.18.0.2/24");
  const Station second("198.18.0.3/24");
  TestQp qp(station, transport::QpType::ud);
  qp.activate();
  std::vector<transport::AddressVector> paths{station.path_to(first), station.path_to(first),
                                              station.path_to(second), station.path_to(first),
                                              station.path_to(first)};
  paths.back().path.udp_source_port = 0xd123;
  constexpr uint32_t kQpn = 77;
  for (const transport::AddressVector& path : paths) qp.send_datagram(path, kQpn);
  station.turn();
  const std::vector<Frame> frames = station.port.take_sent();
  ASSERT_EQ(frames.size(), paths.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    const wire::Packet packet = packet_of(frames[i]);
    const wire::PathHeader& path = paths[i].path;
    EXPECT_EQ(packet.destination_gid(), path.destination_gid) << i;
    EXPECT_EQ(packet.udp_source_port(), path.udp_source_port) << i;
    EXPECT_TRUE(std::ranges::equal(std::span(frames[i]).first(6), path.destination_mac.bytes)) << i;
  }
}

}  // namespace
}  // namespace faultline::glue::test::datagram_test
