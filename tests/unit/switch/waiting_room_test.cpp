// SPDX-License-Identifier: BSD-3-Clause
// Limits on frames that wait for ports which accept none.
#include "apps/switch/waiting_room.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace faultline::switching::waiting_room_test {
namespace {

using Admission = WaitingRoom::Admission;
constexpr size_t kPool = 16'382;

size_t fill(WaitingRoom& room, PortIndex port) {
  size_t admitted = 0;
  while (room.admit(port) == Admission::admitted) ++admitted;
  return admitted;
}

TEST(WaitingRoom, APortHasABound) {
  WaitingRoom room(kPool);
  EXPECT_EQ(fill(room, 0), WaitingRoom::kMostOfAPort);
  EXPECT_EQ(room.admit(0), Admission::port_full);
  room.leave(0, 3);
  EXPECT_EQ(fill(room, 0), 3U);
}

TEST(WaitingRoom, AllTogetherLeaveHalfOfThePool) {
  WaitingRoom room(kPool);
  room.set_ports(kMaxPorts);
  size_t waiting = 0;
  for (PortIndex port = 0; port < kMaxPorts; ++port) waiting += fill(room, port);
  EXPECT_LE(waiting, kPool / 2);
}

TEST(WaitingRoom, AllWhoTakeNothingLeaveRoomForTheLast) {
  for (const PortIndex ports : {PortIndex{32}, PortIndex{200}, PortIndex{1023}}) {
    WaitingRoom room(kPool);
    room.set_ports(ports);
    for (PortIndex port = 0; port + 1U < ports; ++port) EXPECT_GE(fill(room, port), room.own_places());
    const auto last = static_cast<PortIndex>(ports - 1);
    EXPECT_EQ(fill(room, last), room.own_places());
    EXPECT_EQ(room.admit(last), Admission::all_full);
    // It accepts what it receives, and so may receive more for ever.
    const size_t burst = std::min<size_t>(64, room.own_places());
    for (int bursts = 0; bursts < 1000; ++bursts) {
      room.leave(last, burst);
      EXPECT_EQ(fill(room, last), burst);
    }
  }
}

// Ports come and go while frames wait: no place is lost or counted twice.
TEST(WaitingRoom, PortsThatComeAndGoLoseNoPlace) {
  WaitingRoom room(kPool);
  for (const size_t ports : {1U, 4U, 1000U, 2U, 32U}) {
    room.set_ports(ports);
    for (PortIndex port = 0; port < 4; ++port) static_cast<void>(fill(room, port));
  }
  for (PortIndex port = 0; port < 4; ++port) room.leave(port, room.waiting(port));
  room.set_ports(32);
  size_t waiting = 0;
  for (PortIndex port = 0; port < 32; ++port) waiting += fill(room, port);
  EXPECT_EQ(waiting, kPool / 2);
}

TEST(WaitingRoom, WhatLeavesIsSharedAgain) {
  constexpr PortIndex kPorts = 32;
  WaitingRoom room(kPool);
  room.set_ports(kPorts);
  for (int round = 0; round < 100; ++round) {
    size_t waiting = 0;
    for (PortIndex port = 0; port < kPorts; ++port) waiting += fill(room, port);
    EXPECT_EQ(waiting, kPool / 2);
    for (PortIndex port = 0; port < kPorts; ++port) {
      room.leave(port, room.waiting(port) / 2);
      room.leave(port, room.waiting(port));
      EXPECT_EQ(room.waiting(port), 0U);
    }
  }
}

TEST(WaitingRoom, ASmallPoolHasTheOwnPlacesAlone) {
  WaitingRoom room(100);
  room.set_ports(10);
  EXPECT_EQ(room.own_places(), 2U);
  for (PortIndex port = 0; port < 10; ++port) EXPECT_GE(fill(room, port), 2U);
}

}  // namespace
}  // namespace faultline::switching::waiting_room_test
