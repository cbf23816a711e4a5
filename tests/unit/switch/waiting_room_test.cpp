// SPDX-License-Identifier: BSD-3-Clause
// Limits on frames that wait for ports which accept none.
#include "apps/switch/waiting_room.hpp"

#include <gtest/gtest.h>

namespace faultline::switching {
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
  size_t waiting = 0;
  for (PortIndex port = 0; port < kMaxPorts; ++port) waiting += fill(room, port);
  EXPECT_LE(waiting, kPool / 2);
}

TEST(WaitingRoom, ThirtyOneWhoTakeNothingLeaveRoomForTheLast) {
  WaitingRoom room(kPool);
  for (PortIndex port = 0; port + 1U < kMaxPorts; ++port)
    EXPECT_GE(fill(room, port), WaitingRoom::kOwnPlaces);
  constexpr PortIndex kLast = kMaxPorts - 1;
  EXPECT_EQ(fill(room, kLast), WaitingRoom::kOwnPlaces);
  EXPECT_EQ(room.admit(kLast), Admission::all_full);
  // It accepts what it receives, and so may receive more for ever.
  for (int burst = 0; burst < 1000; ++burst) {
    room.leave(kLast, 64);
    EXPECT_EQ(fill(room, kLast), 64U);
  }
}

TEST(WaitingRoom, WhatLeavesIsSharedAgain) {
  WaitingRoom room(kPool);
  for (int round = 0; round < 100; ++round) {
    size_t waiting = 0;
    for (PortIndex port = 0; port < kMaxPorts; ++port) waiting += fill(room, port);
    EXPECT_EQ(waiting, kPool / 2);
    for (PortIndex port = 0; port < kMaxPorts; ++port) {
      room.leave(port, room.waiting(port) / 2);
      room.leave(port, room.waiting(port));
      EXPECT_EQ(room.waiting(port), 0U);
    }
  }
}

TEST(WaitingRoom, ASmallPoolHasTheOwnPlacesAlone) {
  WaitingRoom room(100);
  EXPECT_EQ(fill(room, 0), WaitingRoom::kOwnPlaces);
}

}  // namespace
}  // namespace faultline::switching
