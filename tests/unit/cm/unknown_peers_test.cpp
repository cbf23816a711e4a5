// SPDX-License-Identifier: BSD-3-Clause
// Messages from strangers in large numbers: the state created for them is bounded, and honest peers succeed
// afterwards.
#include "tests/unit/cm/connection_fixture.hpp"

namespace faultline::cm::test::unknown_peers_test {
namespace {

constexpr uint32_t kAtOnce = ManagerConfig{}.unknown_peer_burst;

class Strangers : public Connection {
 protected:
  [[nodiscard]] uint64_t too_many() {
    return server.manager().counters().drops[static_cast<size_t>(DropReason::rate)];
  }
  void disconnect_nothing(uint32_t number) {
    wire::MadBytes mad;
    wire::write(mad, 1, wire::CmDreq{.local_id = number, .remote_id = 0x80000000 | number, .remote_qpn = 9});
    server.receive(mad, {.reply = server.path_to(client).av}, now());
  }
};

TEST_F(Strangers, AFloodIsNotAnsweredByAFlood) {
  for (uint32_t number = 0; number < 10 * kAtOnce; ++number) disconnect_nothing(number);
  EXPECT_EQ(server.sent.size(), kAtOnce);
  EXPECT_EQ(too_many(), 9 * kAtOnce);
  net.run_for(kSecond);
  disconnect_nothing(0);
  EXPECT_EQ(server.sent.size(), kAtOnce + 1);
}

TEST_F(Strangers, RequestsAreTakenAtARate) {
  ASSERT_EQ(server.manager().listen({.service_id = kService, .backlog = 10 * kAtOnce}, listener), 0);
  for (uint32_t qpn = 1; qpn <= 4 * kAtOnce; ++qpn) connect(qpn);
  net.settle();
  uint32_t asked = 0;
  for (; server.has_event(); ++asked) EXPECT_EQ(server.next_event().kind, EventKind::requested);
  EXPECT_GE(asked, kAtOnce);
  EXPECT_LE(asked, kAtOnce + 10) << "those of a millisecond";
  EXPECT_EQ(too_many(), 4 * kAtOnce - asked);
  // The other clients retransmit their requests.
  net.run_for(2 * kSecond);
  for (; server.has_event(); ++asked) static_cast<void>(server.next_event());
  EXPECT_EQ(asked, 4 * kAtOnce);
}

}  // namespace
}  // namespace faultline::cm::test::unknown_peers_test
