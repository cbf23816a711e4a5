// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/wires/wire_request.hpp"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace faultline::glue::wire_request_test {
namespace {

TEST(WireRequest, WiresOfOtherNamesAndUsersGiveOutOtherAddresses) {
  EXPECT_NE(first_given_out("w0", 1000), first_given_out("w1", 1000));
  EXPECT_NE(first_given_out("w0", 1000), first_given_out("w0", 0));
  EXPECT_EQ(first_given_out("w0", 1000), first_given_out("w0", 1000));
}

TEST(WireRequest, WhatAWireGivesOutIsItsOwnOrAllOfAnothers) {
  std::set<uint32_t> firsts;
  for (uint32_t user = 0; user < 2000; ++user) {
    const uint32_t first = first_given_out("w" + std::to_string(user % 7), user);
    firsts.insert(first);
    EXPECT_GE(first, 0xc6120101U);  // after the addresses of the sides, 198.18.0.x
    EXPECT_LE(first + kAddressesOfWire - 1, 0xc613fffeU);
    EXPECT_EQ((first - 0xc6120101U) % kAddressesOfWire, 0U);
  }
  // 2000 draws from 4080 values: some coincide.
  EXPECT_GT(firsts.size(), 1400U);
}

}  // namespace
}  // namespace faultline::glue::wire_request_test
