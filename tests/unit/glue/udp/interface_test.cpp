// SPDX-License-Identifier: BSD-3-Clause
// Interfaces in the network namespace of udp_socket_test.cpp.
#include "pmd_glue/link/interface.hpp"

#include <stop_token>
#include <thread>

#include <gtest/gtest.h>

#include "tests/interop/own_network.hpp"

namespace faultline::glue::test::interface_test {
namespace {

// The kernel updates IFF_RUNNING later than the carrier: in 2 of 60 starts of a program beside other tests,
// its port was down.
TEST(Interface, IsRunningAsSoonAsItHasACarrier) {
  if (interface_index("fl-a") == 0) GTEST_SKIP() << "no network namespace for an ordinary user, or no ip";
  // Changes of other interfaces delay IFF_RUNNING.
  std::jthread changes([](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      faultline::test::ip("link add fl-one type veth peer name fl-two");
      faultline::test::ip("link del fl-one");
    }
  });
  constexpr int kTries = 50;
  for (int i = 0; i < kTries; ++i) {
    faultline::test::ip("link add fl-new type veth peer name fl-end");
    faultline::test::ip("link set fl-end up");
    EXPECT_FALSE(interface_is_running(interface_index("fl-new")));
    faultline::test::ip("link set fl-new up");
    EXPECT_TRUE(interface_is_running(interface_index("fl-new")));
    faultline::test::ip("link set fl-end down");
    EXPECT_FALSE(interface_is_running(interface_index("fl-new")));
    faultline::test::ip("link del fl-new");
  }
}

}  // namespace
}  // namespace faultline::glue::test::interface_test
