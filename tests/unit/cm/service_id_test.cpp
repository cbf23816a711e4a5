// SPDX-License-Identifier: BSD-3-Clause
// Datagram services (SIDR): which QP serves, regardless of losses.
#include <algorithm>
#include <cerrno>

#include <gtest/gtest.h>

#include "tests/unit/cm/network.hpp"

namespace faultline::cm::test::service_id_test {
namespace {

using wire::CmAttribute;
using wire::SidrStatus;

constexpr uint64_t kService = wire::ip_service_id(0x0111, 7174);

class Resolution : public testing::Test {
 protected:
  void listen(uint32_t backlog = 16) {
    ASSERT_EQ(server.manager().listen({.service_id = kService, .backlog = backlog}, listener), 0);
  }
  [[nodiscard]] ResolveParams request() const {
    return {.service_id = kService, .path = client.path_to(server), .ip = client.addressing_to(server)};
  }
  void resolve() { ASSERT_EQ(client.manager().resolve(request(), net.now(), asked), 0); }

  Network net;
  Node& client = net.add();
  Node& server = net.add();
  Id listener = 0, asked = 0;
};

TEST_F(Resolution, TellsTheQpAndItsKey) {
  listen();
  const auto question = pattern(wire::kSidrReqPrivateBytes - wire::kIpAddressingBytes, 1);
  const auto reply = pattern(wire::kSidrRepPrivateBytes, 2);
  ResolveParams params = request();
  params.private_data = question;
  params.user = 9;
  ASSERT_EQ(client.manager().resolve(params, net.now(), asked), 0);
  net.settle();
  const Event at_server = server.next_event();
  EXPECT_EQ(at_server.kind, EventKind::service_requested);
  EXPECT_EQ(at_server.listener, listener);
  EXPECT_EQ(at_server.service_id, kService);
  EXPECT_EQ(at_server.ip, client.addressing_to(server));
  EXPECT_EQ(at_server.path.av.path.destination_gid, client.gid());
  EXPECT_TRUE(std::equal(question.begin(), question.end(), at_server.private_data.bytes().begin()));
  ASSERT_EQ(server.manager().answer(at_server.id, {.qpn = 0x222, .qkey = 0x1234567, .private_data = reply},
                                    net.now()),
            0);
  EXPECT_EQ(server.manager().answer(at_server.id, {}, net.now()), EINVAL) << "once";
  net.settle();
  const Event at_client = client.next_event();
  EXPECT_EQ(at_client.kind, EventKind::service_resolved);
  EXPECT_EQ(at_client.id, asked);
  EXPECT_EQ(at_client.user, 9U);
  EXPECT_EQ(at_client.sidr_status, SidrStatus::valid);
  EXPECT_EQ(at_client.remote_qpn, 0x222U);
  EXPECT_EQ(at_client.remote_qkey, 0x1234567U);
  EXPECT_TRUE(std::equal(reply.begin(), reply.end(), at_client.private_data.bytes().begin()));
}

TEST_F(Resolution, NobodyServes) {
  resolve();
  net.settle();
  const Event event = client.next_event();
  EXPECT_EQ(event.kind, EventKind::service_resolved);
  EXPECT_EQ(event.sidr_status, SidrStatus::unsupported);
}

TEST_F(Resolution, ADestroyedRequestIsRejected) {
  listen();
  resolve();
  net.settle();
  server.manager().destroy(server.next_event().id, net.now());
  net.settle();
  EXPECT_EQ(client.next_event().sidr_status, SidrStatus::rejected);
}

TEST_F(Resolution, SomebodyElsesAddressIsRejected) {
  listen();
  ResolveParams params = request();
  params.ip->source = wire::Gid::from_ipv4(0xc6120099);
  ASSERT_EQ(client.manager().resolve(params, net.now(), asked), 0);
  net.settle();
  EXPECT_FALSE(server.has_event());
  EXPECT_EQ(client.next_event().sidr_status, SidrStatus::rejected);
}

TEST_F(Resolution, LostMessagesCostLittle) {
  listen();
  for (const CmAttribute attribute : {CmAttribute::sidr_req, CmAttribute::sidr_rep}) {
    net.loses = losing(attribute, 2);
    resolve();
    net.run_for(kSecond);
    const Event event = server.next_event();
    EXPECT_EQ(event.kind, EventKind::service_requested);
    ASSERT_EQ(server.manager().answer(event.id, {.qpn = 5}, net.now()), 0);
    // The owner may destroy the identifier before the message arrives.
    server.manager().destroy(event.id, net.now());
    net.run_for(5 * kSecond);
    EXPECT_EQ(client.next_event().remote_qpn, 5U);
    EXPECT_FALSE(server.has_event()) << "told once, however often it was asked";
  }
  net.run_for(20 * kSecond);
  client.manager().destroy_all(net.now());
  server.manager().destroy_all(net.now());
  EXPECT_EQ(client.manager().next_deadline(), kNever);
  EXPECT_EQ(server.manager().next_deadline(), kNever);
}

TEST_F(Resolution, SilenceEndsIt) {
  net.loses = [](const wire::CmMad&) { return true; };
  ResolveParams params = request();
  params.response_timeout = 16;
  params.max_retries = 2;
  ASSERT_EQ(client.manager().resolve(params, net.now(), asked), 0);
  net.run_for(5 * kSecond);
  EXPECT_EQ(client.next_event().kind, EventKind::service_unreachable);
}

TEST_F(Resolution, WrongCallsAreRefused) {
  const auto data = pattern(wire::kSidrReqPrivateBytes, 1);
  ResolveParams params = request();
  params.private_data = data;
  EXPECT_EQ(client.manager().resolve(params, net.now(), asked), EINVAL) << "no room for the header";
  params.ip.reset();
  EXPECT_EQ(client.manager().resolve(params, net.now(), asked), EINVAL) << "no header";
  params.service_id = 0xcafe;
  EXPECT_EQ(client.manager().resolve(params, net.now(), asked), 0);
}

TEST_F(Resolution, ABacklogBoundsWhatWaits) {
  listen(1);
  resolve();
  resolve();
  net.settle();
  const Event first = server.next_event();
  EXPECT_FALSE(server.has_event());
  ASSERT_EQ(server.manager().answer(first.id, {.qpn = 5}, net.now()), 0);
  net.run_for(kSecond);
  EXPECT_EQ(server.next_event().kind, EventKind::service_requested);
}

}  // namespace
}  // namespace faultline::cm::test::service_id_test
