// SPDX-License-Identifier: BSD-3-Clause
// A client and a server on one network, and the steps between them.
#pragma once

#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/cm/network.hpp"

namespace faultline::cm::test {

using wire::CmAttribute;
using wire::RejectReason;

inline constexpr uint64_t kService = wire::ip_service_id(0x0106, 7174);
inline constexpr uint64_t kPlainService = 0x00000000cafe0000;

inline std::vector<uint8_t> bytes_of(const PrivateData& data) {
  return {data.bytes().begin(), data.bytes().end()};
}

class Connection : public testing::Test {
 protected:
  void listen(uint64_t service = kService) {
    ASSERT_EQ(server.manager().listen({.service_id = service, .user = 77}, listener), 0);
  }
  void connect(uint32_t qpn = 0x111) {
    ASSERT_EQ(client.manager().connect(client.request_to(server, kService, qpn), now(), active), 0);
  }
  /// Runs until the server receives the request, and stores its identifier.
  Event take_request() {
    net.settle();
    const Event event = server.next_event();
    EXPECT_EQ(event.kind, EventKind::requested);
    passive = event.id;
    return event;
  }
  void accept(uint32_t qpn = 0x222) {
    ASSERT_EQ(server.manager().accept(passive, {.qpn = qpn, .starting_psn = 0x99}, now()), 0);
  }
  void establish(uint32_t client_qpn = 0x111, uint32_t server_qpn = 0x222) {
    connect(client_qpn);
    static_cast<void>(take_request());
    accept(server_qpn);
    net.settle();
    ASSERT_EQ(client.next_event().kind, EventKind::replied);
    ASSERT_EQ(client.manager().confirm(active, {}, now()), 0);
    net.settle();
    ASSERT_EQ(server.next_event().kind, EventKind::established);
    ASSERT_EQ(client.manager().state(active), State::established);
  }
  [[nodiscard]] TimeNs now() const { return net.now(); }
  void expect_no_events() {
    EXPECT_FALSE(client.has_event());
    EXPECT_FALSE(server.has_event());
  }
  /// Checks that all work in progress has ended and that no state remains.
  void expect_rest() {
    client.manager().destroy_all(now());
    server.manager().destroy_all(now());
    net.run_for(100 * kSecond);
    EXPECT_EQ(client.manager().next_deadline(), kNever);
    EXPECT_EQ(server.manager().next_deadline(), kNever);
    expect_no_events();
  }

  Network net;
  Node& client = net.add();
  Node& server = net.add();
  Id listener = 0, active = 0, passive = 0;
};

}  // namespace faultline::cm::test
