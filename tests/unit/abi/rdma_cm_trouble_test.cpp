// SPDX-License-Identifier: BSD-3-Clause
// The rdma_cm device with a scenario: events of the channel, and conditions on them.
#include "tests/unit/abi/rdma_cm_fixture.hpp"
#include "tests/unit/verbs/trouble/play.hpp"

namespace faultline::abi::test {
namespace {

using verbs::test::Play;

TEST_F(RdmaCm, ReportsAChangeOfAddressToBoundIdentifiers) {
  const Play play(R"([[rule]]
when = { call = "rdma_set_option" }
do = { cm_event = "RDMA_CM_EVENT_ADDR_CHANGE" }
)");
  Channel client, other;
  const uint32_t bound = resolved(client, 2);
  const uint32_t unbound = client.create(3);
  const uint32_t elsewhere = resolved(other, 4);
  rdma_ucm_set_option fields{};
  fields.id = bound;
  static_cast<void>(client.command(RDMA_USER_CM_CMD_SET_OPTION, fields));
  const auto change = client.expect(CmEvent::address_change);
  EXPECT_EQ(change.uid, 2U);
  EXPECT_EQ(change.status, 0);
  EXPECT_FALSE(client.readable(0)) << "nothing for an identifier without a device";
  EXPECT_FALSE(other.readable(0)) << "nothing in another channel";
  ASSERT_EQ(play.lines().size(), 1U);
  EXPECT_EQ(client.destroy(bound), 0);
  EXPECT_EQ(client.destroy(unbound), 0);
  EXPECT_EQ(other.destroy(elsewhere), 0);
}

TEST_F(RdmaCm, ARuleWaitsForAnEventThatTheProgramGets) {
  const Play play(R"([[rule]]
when = { cm_event = "RDMA_CM_EVENT_ROUTE_RESOLVED" }
do = { cm_event = "RDMA_CM_EVENT_ADDR_CHANGE" }
[[rule]]
when = { cm_event = "RDMA_CM_EVENT_ADDR_CHANGE" }
do = { link = "down", for_ms = 1 }
)");
  Channel client;
  const uint32_t id = resolved(client, 2);
  client.expect(CmEvent::address_change);
  ASSERT_EQ(play.lines().size(), 2U);
  EXPECT_NE(play.lines()[0].find(R"("event":"cm_event RDMA_CM_EVENT_ROUTE_RESOLVED")"), std::string::npos)
      << play.lines()[0];
  EXPECT_EQ(client.destroy(id), 0);
}

}  // namespace
}  // namespace faultline::abi::test
