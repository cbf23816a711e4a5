// SPDX-License-Identifier: BSD-3-Clause
// Connections under loss and delay, their termination, and several at once.
#include <algorithm>
#include <cerrno>

#include <gtest/gtest.h>

#include "tests/unit/cm/connection_fixture.hpp"

namespace faultline::cm::test::connection_loss_test {
namespace {

// ---- loss ----

class LostMessage : public Connection, public testing::WithParamInterface<std::pair<CmAttribute, int>> {};

TEST_P(LostMessage, CostsLittleAndNobodyNotices) {
  listen();
  net.loses = losing(GetParam().first, GetParam().second);
  connect();
  net.run_for(30 * kSecond);
  passive = server.next_event().id;
  accept();
  net.run_for(30 * kSecond);
  ASSERT_EQ(client.next_event().kind, EventKind::replied);
  ASSERT_EQ(client.manager().confirm(active, {}, now()), 0);
  net.run_for(30 * kSecond);
  ASSERT_EQ(server.next_event().kind, EventKind::established);
  ASSERT_EQ(client.manager().disconnect(active, {}, now()), 0);
  net.run_for(30 * kSecond);
  ASSERT_EQ(server.next_event().kind, EventKind::disconnected);
  ASSERT_EQ(server.manager().disconnect(passive, {}, now()), 0);
  net.run_for(30 * kSecond);
  ASSERT_EQ(client.next_event().kind, EventKind::disconnected);
  net.run_for(20 * kSecond);
  EXPECT_EQ(client.next_event().kind, EventKind::time_wait_over);
  EXPECT_EQ(server.next_event().kind, EventKind::time_wait_over);
  EXPECT_GE(client.manager().counters().sent_again + server.manager().counters().sent_again, 1U);
  expect_rest();
}

INSTANTIATE_TEST_SUITE_P(Messages, LostMessage,
                         testing::Values(std::pair(CmAttribute::req, 1), std::pair(CmAttribute::req, 4),
                                         std::pair(CmAttribute::rep, 1), std::pair(CmAttribute::rep, 4),
                                         std::pair(CmAttribute::rtu, 1), std::pair(CmAttribute::rtu, 4),
                                         std::pair(CmAttribute::dreq, 1), std::pair(CmAttribute::dreq, 4),
                                         std::pair(CmAttribute::drep, 1), std::pair(CmAttribute::drep, 4)));

TEST_F(Connection, MessagesThatComeTwiceAreToldOnce) {
  net.script.duplicate_permille = 1000;
  listen();
  establish();
  expect_no_events();
  ASSERT_EQ(server.manager().disconnect(passive, {}, now()), 0);
  net.settle();
  ASSERT_EQ(client.next_event().kind, EventKind::disconnected);
  ASSERT_EQ(client.manager().disconnect(active, {}, now()), 0);
  net.settle();
  ASSERT_EQ(server.next_event().kind, EventKind::disconnected);
  expect_no_events();
  expect_rest();
}

// ---- slow programs ----

TEST_F(Connection, WhoAsksAgainIsAskedToWait) {
  listen();
  connect();
  static_cast<void>(take_request());
  net.run_for(60 * kSecond);  // the repeated REQ is answered by an MRA
  EXPECT_EQ(client.manager().state(active), State::mra_req_received);
  EXPECT_FALSE(client.has_event());
  accept();
  net.settle();
  ASSERT_EQ(client.next_event().kind, EventKind::replied);
  net.run_for(60 * kSecond);
  EXPECT_EQ(server.manager().state(passive), State::mra_rep_received);
  ASSERT_EQ(client.manager().confirm(active, {}, now()), 0);
  net.settle();
  EXPECT_EQ(server.next_event().kind, EventKind::established);
  expect_no_events();
}

TEST_F(Connection, AskingForPatienceEndsAsWell) {
  listen();
  ConnectParams params = client.request_to(server, kService, 0x111);
  params.timing = {.remote_response_timeout = 16, .max_retries = 2};  // 268 ms
  params.path.packet_lifetime = 10;
  ASSERT_EQ(client.manager().connect(params, now(), active), 0);
  static_cast<void>(take_request());
  const auto data = pattern(wire::kMraPrivateBytes, 1);
  ASSERT_EQ(server.manager().delay(passive, 18, data, now()), 0);  // 1.07 s
  net.settle();
  EXPECT_EQ(client.manager().state(active), State::mra_req_received);
  net.run_for(1'000 * kMs);
  expect_no_events();
  net.loses = [](const wire::CmMad&) { return true; };
  net.run_for(10 * kSecond);
  EXPECT_EQ(client.next_event().kind, EventKind::unreachable);
}

TEST_F(Connection, DataIsAsGoodAsTheRtu) {
  listen();
  connect();
  static_cast<void>(take_request());
  accept();
  net.settle();
  static_cast<void>(client.next_event());
  net.loses = losing(CmAttribute::rtu, 1);
  ASSERT_EQ(client.manager().confirm(active, {}, now()), 0);
  ASSERT_EQ(server.manager().notify_established(passive, now()), 0);
  EXPECT_EQ(server.next_event().kind, EventKind::established);
  EXPECT_EQ(server.manager().notify_established(passive, now()), EISCONN);
  net.run_for(10 * kSecond);
  expect_no_events();
}

// ---- ends ----

TEST_F(Connection, BothSidesDisconnectAtOnce) {
  listen();
  establish();
  ASSERT_EQ(client.manager().disconnect(active, {}, now()), 0);
  ASSERT_EQ(server.manager().disconnect(passive, {}, now()), 0);
  EXPECT_EQ(server.manager().disconnect(passive, {}, now()), ENOTCONN);
  net.settle();
  EXPECT_EQ(client.next_event().kind, EventKind::disconnected);
  EXPECT_EQ(server.next_event().kind, EventKind::disconnected);
  EXPECT_EQ(client.manager().state(active), State::time_wait);
  EXPECT_EQ(server.manager().state(passive), State::time_wait);
  expect_no_events();
}

TEST_F(Connection, ADeadPeerIsGivenUp) {
  listen();
  establish();
  net.loses = [](const wire::CmMad&) { return true; };
  ASSERT_EQ(client.manager().disconnect(active, {}, now()), 0);
  net.run_for(11 * kSecond);
  EXPECT_EQ(client.next_event().kind, EventKind::disconnected);
}

// In any state, the peer is notified and no state remains.
TEST_F(Connection, DestroyedWhereverItIs) {
  listen();
  connect();
  client.manager().destroy(active, now());  // REQ sent
  net.settle();
  EXPECT_EQ(server.next_event().kind, EventKind::requested);
  EXPECT_EQ(server.next_event().reason, RejectReason::timeout);

  connect(0x112);
  server.manager().destroy(take_request().id, now());  // REQ received
  net.settle();
  EXPECT_EQ(client.next_event().reason, RejectReason::consumer_defined);

  connect(0x113);
  static_cast<void>(take_request());
  accept(0x223);
  server.manager().destroy(passive, now());  // REP sent
  net.settle();
  EXPECT_EQ(client.next_event().kind, EventKind::replied);
  EXPECT_EQ(client.next_event().kind, EventKind::rejected);

  connect(0x114);
  static_cast<void>(take_request());
  accept(0x224);
  net.settle();
  EXPECT_EQ(client.next_event().kind, EventKind::replied);
  client.manager().destroy(active, now());  // REP received
  net.settle();
  EXPECT_EQ(server.next_event().kind, EventKind::rejected);

  establish(0x115, 0x225);
  client.manager().destroy(active, now());  // established
  net.settle();
  EXPECT_EQ(server.next_event().kind, EventKind::disconnected);
  server.manager().destroy(passive, now());  // DREQ received
  expect_no_events();
  expect_rest();
}

TEST_F(Connection, ADestroyedListenerRejectsWhatNobodyTook) {
  listen();
  connect();
  net.settle();
  server.manager().destroy(listener, now());
  EXPECT_FALSE(server.has_event());
  net.settle();
  EXPECT_EQ(client.next_event().kind, EventKind::rejected);
  connect(0x112);
  net.settle();
  EXPECT_EQ(client.next_event().reason, RejectReason::invalid_service_id);
  expect_rest();
}

TEST_F(Connection, AQpnConnectsAgainWhileThePeersRests) {
  listen();
  establish(0x111, 0x222);
  ASSERT_EQ(client.manager().disconnect(active, {}, now()), 0);
  net.settle();
  EXPECT_EQ(server.next_event().kind, EventKind::disconnected);
  server.manager().destroy(passive, now());
  net.settle();
  client.manager().destroy(active, now());
  establish(0x111, 0x222);
  // The end of the old connection's rest leaves the new one its QPN: a third connection of the QPN is stale.
  net.run_for(20 * kSecond);
  connect(0x111);
  net.settle();
  EXPECT_EQ(server.manager().counters().stale, 1U);
}

// The peer has lost the connection, as after a crash, and its QPN appears again.
TEST_F(Connection, AForgottenConnectionEnds) {
  listen();
  establish(0x111, 0x222);
  Network later(2);
  Node& reborn = later.add({.seed = 0x777});
  Node& peer = later.add();
  Id again = 0;
  ASSERT_EQ(reborn.manager().connect(reborn.request_to(peer, kService, 0x111), now(), again), 0);
  const Id forgotten = passive;
  server.receive(reborn.sent[0], {.reply = server.path_to(client).av}, now());
  EXPECT_EQ(wire::read_rej(parsed(server.sent[1])).reason, RejectReason::stale_connection);
  EXPECT_EQ(wire::read_rej(parsed(server.sent[1])).remote_id, again);
  // The old connection sends a DREQ, and a peer that does not know the connection answers with a DREP.
  ASSERT_EQ(parsed(server.sent[2]).attribute(), CmAttribute::dreq);
  reborn.receive(server.sent[2], {.reply = reborn.path_to(peer).av}, now());
  ASSERT_EQ(reborn.sent_attributes().back(), CmAttribute::drep);
  server.receive(reborn.sent.back(), {.reply = server.path_to(client).av}, now());
  const Event event = server.next_event();
  EXPECT_EQ(event.kind, EventKind::disconnected);
  EXPECT_EQ(event.id, forgotten);
  EXPECT_EQ(server.manager().counters().stale, 1U);
}

// Found by the fuzzer: a request without a QP must leave no state.
TEST_F(Connection, ARequestOfNoQpLeavesNothingBehind) {
  listen();
  for (int i = 0; i < 3; ++i) {
    connect(0);
    net.settle();
    const Event event = server.next_event();
    ASSERT_EQ(event.kind, EventKind::requested) << i;
    server.manager().destroy(event.id, now());
    client.manager().destroy(active, now());
    net.run_for(20 * kSecond);
  }
  EXPECT_EQ(server.manager().counters().stale, 0U);
}

TEST_F(Connection, AReplyFromAQpThatIsTakenIsStale) {
  listen();
  establish(0x111, 0x222);
  connect(0x112);
  static_cast<void>(take_request());
  accept(0x222);
  net.settle();
  const Event event = client.next_event();
  EXPECT_EQ(event.kind, EventKind::rejected);
  EXPECT_EQ(event.reason, RejectReason::stale_connection);
  EXPECT_EQ(server.next_event().reason, RejectReason::stale_connection);
}

// ---- several ----

TEST_F(Connection, BothSidesConnectAtOnce) {
  Id other_listener = 0, other_active = 0;
  listen();
  ASSERT_EQ(client.manager().listen({.service_id = kService}, other_listener), 0);
  connect(0x111);
  ASSERT_EQ(server.manager().connect(server.request_to(client, kService, 0x333), now(), other_active), 0);
  net.settle();
  const Event at_server = server.next_event();
  const Event at_client = client.next_event();
  EXPECT_EQ(at_server.remote_qpn, 0x111U);
  EXPECT_EQ(at_client.remote_qpn, 0x333U);
  ASSERT_EQ(server.manager().accept(at_server.id, {.qpn = 0x222}, now()), 0);
  ASSERT_EQ(client.manager().accept(at_client.id, {.qpn = 0x444}, now()), 0);
  net.settle();
  EXPECT_EQ(client.next_event().remote_qpn, 0x222U);
  EXPECT_EQ(server.next_event().remote_qpn, 0x444U);
  ASSERT_EQ(client.manager().confirm(active, {}, now()), 0);
  ASSERT_EQ(server.manager().confirm(other_active, {}, now()), 0);
  net.settle();
  EXPECT_EQ(client.next_event().id, at_client.id);
  EXPECT_EQ(server.next_event().id, at_server.id);
  expect_rest();
}

TEST_F(Connection, ADeviceConnectsToItself) {
  listen();
  ASSERT_EQ(server.manager().connect(server.request_to(server, kService, 0x111), now(), active), 0);
  static_cast<void>(take_request());
  accept(0x222);
  net.settle();
  EXPECT_EQ(server.next_event().id, active);
  ASSERT_EQ(server.manager().confirm(active, {}, now()), 0);
  net.settle();
  EXPECT_EQ(server.next_event().id, passive);
  ASSERT_EQ(server.manager().disconnect(active, {}, now()), 0);
  net.settle();
  EXPECT_EQ(server.next_event().id, passive);
  ASSERT_EQ(server.manager().disconnect(passive, {}, now()), 0);
  net.settle();
  EXPECT_EQ(server.next_event().id, active);
  expect_rest();
}

TEST_F(Connection, OfAnXrcTargetTheEecIsTheQp) {
  listen();
  ConnectParams params = client.request_to(server, kService, 0x111);
  params.transport = wire::CmTransport::xrc;
  ASSERT_EQ(client.manager().connect(params, now(), active), 0);
  EXPECT_EQ(take_request().transport, wire::CmTransport::xrc);
  accept(0x222);
  const wire::CmRep rep = wire::read_rep(parsed(server.sent[0]));
  EXPECT_EQ(rep.eecn, 0x222U);
  EXPECT_EQ(rep.qpn, 0U);
  EXPECT_TRUE(rep.srq);
  net.settle();
  EXPECT_EQ(client.next_event().remote_qpn, 0x222U);
}

TEST_F(Connection, ABacklogIsFullUntilSomethingIsAnswered) {
  ASSERT_EQ(server.manager().listen({.service_id = kService, .backlog = 2}, listener), 0);
  for (uint32_t qpn = 1; qpn <= 3; ++qpn) connect(qpn);
  static_cast<void>(take_request());
  ASSERT_EQ(server.next_event().kind, EventKind::requested);
  EXPECT_FALSE(server.has_event());
  EXPECT_EQ(server.manager().counters().drops[static_cast<size_t>(DropReason::backlog)], 1U);
  accept();
  // The third client retransmits its REQ without help of the program.
  net.run_for(kSecond);
  EXPECT_EQ(server.next_event().kind, EventKind::requested);
}

TEST_F(Connection, IdsAreNumberedInTheirRangeAndBounded) {
  Node& sharer =
      net.add({.comm_id_base = 0x5a000000, .comm_id_mask = 0x0000ffff, .seed = 0xfff0, .max_ids = 40});
  std::vector<Id> ids;
  for (uint32_t qpn = 1; qpn <= 40; ++qpn) {
    Id id = 0;
    ASSERT_EQ(sharer.manager().connect(sharer.request_to(server, kService, qpn), now(), id), 0);
    EXPECT_EQ(id & 0xffff0000, 0x5a000000U);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), id), 0);
    ids.push_back(id);
  }
  Id id = 0;
  EXPECT_EQ(sharer.manager().connect(sharer.request_to(server, kService, 99), now(), id), ENOMEM);
  EXPECT_EQ(sharer.manager().listen({}, id), ENOMEM);
  sharer.manager().destroy(ids[0], now());
  EXPECT_EQ(sharer.manager().listen({}, id), 0);
}

TEST_F(Connection, AServiceIsClaimedForItsFirstListenerAndReleasedWithItsLast) {
  Manager& manager = server.manager();
  const std::multiset<uint64_t> before = server.services;
  Id one = 0, two = 0, other = 0;
  ASSERT_EQ(manager.listen({.service_id = kService + 1, .family = Family::ipv4}, one), 0);
  ASSERT_EQ(manager.listen({.service_id = kService + 1, .family = Family::ipv6}, two), 0);
  EXPECT_EQ(server.services.count(kService + 1), 1U);
  manager.destroy(one, now());
  EXPECT_EQ(server.services.count(kService + 1), 1U);
  manager.destroy(two, now());
  EXPECT_EQ(server.services, before);
  // Another process has claimed the service: listening fails here.
  server.claim_answer = EADDRINUSE;
  EXPECT_EQ(manager.listen({.service_id = kService + 1}, one), EADDRINUSE);
  server.claim_answer = 0;
  EXPECT_EQ(manager.listen({.service_id = kService + 1}, one), 0);
  EXPECT_EQ(manager.listen({.service_id = kService + 2}, other), 0);
  manager.destroy_all(now());
  EXPECT_TRUE(server.services.empty());
}

TEST_F(Connection, TheMostParticularListenerIsAsked) {
  Id any = 0, ipv4 = 0, ipv6 = 0, address = 0, range = 0;
  Manager& manager = server.manager();
  ASSERT_EQ(manager.listen({.service_id = kService & ~0xffULL, .service_mask = ~0xffULL}, range), 0);
  ASSERT_EQ(manager.listen({.service_id = kService, .family = Family::ipv6}, ipv6), 0);
  connect(1);
  EXPECT_EQ(take_request().listener, range);
  ASSERT_EQ(manager.listen({.service_id = kService}, any), 0);
  connect(2);
  EXPECT_EQ(take_request().listener, any);
  ASSERT_EQ(manager.listen({.service_id = kService, .family = Family::ipv4}, ipv4), 0);
  connect(3);
  EXPECT_EQ(take_request().listener, ipv4);
  ASSERT_EQ(manager.listen({.service_id = kService, .address = server.gid()}, address), 0);
  connect(4);
  EXPECT_EQ(take_request().listener, address);
  manager.destroy(address, now());
  connect(5);
  EXPECT_EQ(take_request().listener, ipv4);
}

}  // namespace
}  // namespace faultline::cm::test::connection_loss_test
