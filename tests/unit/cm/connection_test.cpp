// SPDX-License-Identifier: BSD-3-Clause
// Connections between two managers: establishment, the events of each side, and refused requests.
#include <cerrno>

#include <gtest/gtest.h>

#include "tests/unit/cm/connection_fixture.hpp"

namespace faultline::cm::test::connection_test {
namespace {

TEST_F(Connection, StandsAndGivesBothSidesTheSameSettings) {
  listen();
  ConnectParams params = client.request_to(server, kService, 0x111);
  params.responder_resources = 3;
  params.initiator_depth = 5;
  params.retry_count = 6;
  params.rnr_retry_count = 4;
  params.path.mtu = transport::PathMtu::mtu2048;
  params.user = 5;
  ASSERT_EQ(client.manager().connect(params, now(), active), 0);
  const Event requested = take_request();
  EXPECT_EQ(requested.listener, listener);
  EXPECT_EQ(requested.listener_user, 77U);
  EXPECT_EQ(requested.service_id, kService);
  EXPECT_EQ(requested.remote_qpn, 0x111U);
  EXPECT_EQ(requested.responder_resources, 5);
  EXPECT_EQ(requested.initiator_depth, 3);
  EXPECT_EQ(requested.path.av.path.destination_gid, client.gid());
  ASSERT_TRUE(requested.ip);
  EXPECT_EQ(requested.ip, client.addressing_to(server));
  ASSERT_TRUE(server.manager().set_user(passive, 6));
  ASSERT_EQ(server.manager().accept(passive,
                                    {.qpn = 0x222,
                                     .starting_psn = 0x1000099,
                                     .responder_resources = 4,
                                     .initiator_depth = 2,
                                     .rnr_retry_count = 3},
                                    now()),
            0);
  net.settle();
  const Event replied = client.next_event();
  EXPECT_EQ(replied.kind, EventKind::replied);
  EXPECT_EQ(replied.id, active);
  EXPECT_EQ(replied.user, 5U);
  EXPECT_EQ(replied.remote_qpn, 0x222U);
  ASSERT_EQ(client.manager().confirm(active, {}, now()), 0);
  net.settle();
  const Event established = server.next_event();
  EXPECT_EQ(established.kind, EventKind::established);
  EXPECT_EQ(established.id, passive);
  EXPECT_EQ(established.user, 6U);

  QpSettings a, b;
  ASSERT_TRUE(client.manager().settings(active, a));
  ASSERT_TRUE(server.manager().settings(passive, b));
  EXPECT_EQ(a.remote_qpn, 0x222U);
  EXPECT_EQ(b.remote_qpn, 0x111U);
  EXPECT_EQ(a.local_qpn, b.remote_qpn);
  EXPECT_EQ(b.local_qpn, a.remote_qpn);
  EXPECT_EQ(a.rq_psn, 0x777U);
  EXPECT_EQ(a.sq_psn, b.rq_psn);
  EXPECT_EQ(b.sq_psn, a.rq_psn);
  EXPECT_EQ(b.rq_psn, 0x99U) << "24 bits";
  EXPECT_EQ(a.max_rd_atomic, 4);
  EXPECT_EQ(a.max_dest_rd_atomic, 2);
  EXPECT_EQ(b.max_rd_atomic, 2);
  EXPECT_EQ(b.max_dest_rd_atomic, 4);
  EXPECT_EQ(a.path.mtu, transport::PathMtu::mtu2048);
  EXPECT_EQ(b.path.mtu, transport::PathMtu::mtu2048);
  EXPECT_EQ(a.retry_count, 6);
  EXPECT_EQ(b.retry_count, 6);
  EXPECT_EQ(a.rnr_retry_count, 3);
  EXPECT_EQ(b.rnr_retry_count, 4);
  EXPECT_EQ(client.sent_attributes(), (std::vector{CmAttribute::req, CmAttribute::rtu}));
  EXPECT_EQ(server.sent_attributes(), std::vector{CmAttribute::rep});
}

// The peer may not exceed the offered values (IBA 12.7.29).
TEST_F(Connection, ResourcesAreNoMoreThanOffered) {
  listen();
  ConnectParams params = client.request_to(server, kService, 0x111);
  params.responder_resources = 2;
  params.initiator_depth = 3;
  ASSERT_EQ(client.manager().connect(params, now(), active), 0);
  static_cast<void>(take_request());
  ASSERT_EQ(
      server.manager().accept(passive, {.qpn = 1, .responder_resources = 200, .initiator_depth = 200}, now()),
      0);
  net.settle();
  static_cast<void>(client.next_event());
  QpSettings settings;
  ASSERT_TRUE(client.manager().settings(active, settings));
  EXPECT_EQ(settings.max_dest_rd_atomic, 2);
  EXPECT_EQ(settings.max_rd_atomic, 3);
}

TEST_F(Connection, PrivateDataOfFullLengthGoesWithEveryMessage) {
  listen();
  const auto req = pattern(wire::kReqPrivateBytes - wire::kIpAddressingBytes, 1);
  const auto rep = pattern(wire::kRepPrivateBytes, 2);
  const auto rtu = pattern(wire::kRtuPrivateBytes, 3);
  const auto dreq = pattern(wire::kDreqPrivateBytes, 4);
  const auto drep = pattern(wire::kDreqPrivateBytes, 5);
  ConnectParams params = client.request_to(server, kService, 0x111);
  params.private_data = req;
  ASSERT_EQ(client.manager().connect(params, now(), active), 0);
  EXPECT_EQ(bytes_of(take_request().private_data), req);
  ASSERT_EQ(server.manager().accept(passive, {.qpn = 2, .private_data = rep}, now()), 0);
  net.settle();
  EXPECT_EQ(bytes_of(client.next_event().private_data), rep);
  ASSERT_EQ(client.manager().confirm(active, rtu, now()), 0);
  net.settle();
  EXPECT_EQ(bytes_of(server.next_event().private_data), rtu);
  ASSERT_EQ(server.manager().disconnect(passive, dreq, now()), 0);
  net.settle();
  EXPECT_EQ(bytes_of(client.next_event().private_data), dreq);
  ASSERT_EQ(client.manager().disconnect(active, drep, now()), 0);
  net.settle();
  auto got = bytes_of(server.next_event().private_data);
  got.resize(drep.size());
  EXPECT_EQ(got, drep);
}

TEST_F(Connection, TooMuchPrivateDataIsRefused) {
  listen();
  const auto data = pattern(256, 0);
  const auto first = [&data](size_t bytes) { return std::span(data).first(bytes); };
  ConnectParams params = client.request_to(server, kService, 0x111);
  params.private_data = first(wire::kReqPrivateBytes - wire::kIpAddressingBytes + 1);
  EXPECT_EQ(client.manager().connect(params, now(), active), EINVAL);
  params = client.request_to(server, kPlainService, 0x111);
  params.private_data = first(wire::kReqPrivateBytes + 1);
  EXPECT_EQ(client.manager().connect(params, now(), active), EINVAL);
  EXPECT_TRUE(client.sent.empty());
  connect();
  static_cast<void>(take_request());
  Manager& manager = server.manager();
  EXPECT_EQ(manager.accept(passive, {.private_data = first(wire::kRepPrivateBytes + 1)}, now()), EINVAL);
  EXPECT_EQ(manager.reject(passive, RejectReason::no_qp, {}, first(wire::kRejPrivateBytes + 1), now()),
            EINVAL);
  EXPECT_EQ(manager.reject(passive, RejectReason::no_qp, first(wire::kRejInfoBytes + 1), {}, now()), EINVAL);
  EXPECT_EQ(manager.delay(passive, 20, first(wire::kMraPrivateBytes + 1), now()), EINVAL);
  EXPECT_EQ(manager.delay(passive, 32, {}, now()), EINVAL);
  EXPECT_TRUE(server.sent.empty());
}

TEST_F(Connection, WrongCallsAreRefused) {
  listen();
  ConnectParams params = client.request_to(server, kService, 0x1000000);
  EXPECT_EQ(client.manager().connect(params, now(), active), EINVAL) << "a QPN has 24 bits";
  params = client.request_to(server, kService, 1);
  params.ip.reset();
  EXPECT_EQ(client.manager().connect(params, now(), active), EINVAL) << "Annex A11 wants its header";
  params = client.request_to(server, kPlainService, 1);
  params.ip = client.addressing_to(server);
  EXPECT_EQ(client.manager().connect(params, now(), active), EINVAL);
  for (const Id id : {Id{0}, Id{12345}}) {
    EXPECT_EQ(client.manager().accept(id, {}, now()), EINVAL);
    EXPECT_EQ(client.manager().confirm(id, {}, now()), EINVAL);
    EXPECT_EQ(client.manager().disconnect(id, {}, now()), EINVAL);
    EXPECT_EQ(client.manager().notify_established(id, now()), EINVAL);
    EXPECT_EQ(client.manager().answer(id, {}, now()), EINVAL);
    EXPECT_FALSE(client.manager().state(id));
    client.manager().destroy(id, now());
  }
  connect();
  EXPECT_EQ(client.manager().accept(active, {}, now()), EINVAL);
  EXPECT_EQ(client.manager().confirm(active, {}, now()), EINVAL);
  EXPECT_EQ(client.manager().disconnect(active, {}, now()), ENOTCONN);
  EXPECT_EQ(server.manager().accept(listener, {}, now()), EINVAL);
  Id other = 0;
  EXPECT_EQ(server.manager().listen({.service_id = kService}, other), EADDRINUSE);
}

// ---- no connection ----

TEST_F(Connection, NobodyListens) {
  connect();
  net.settle();
  const Event event = client.next_event();
  EXPECT_EQ(event.kind, EventKind::rejected);
  EXPECT_EQ(event.reason, RejectReason::invalid_service_id);
  EXPECT_EQ(client.manager().state(active), State::closed);
  expect_rest();
}

TEST(ListenerPatience, ARequestWaitsForItsListener) {
  Network net;
  Node& server = net.add({.listener_patience_ns = 40 * kMs});
  Node& client = net.add();
  const auto ask = [&](uint64_t service) {
    Id id = 0;
    EXPECT_EQ(client.manager().connect(client.request_to(server, service, 0x21), net.now(), id), 0);
    net.run_for(20 * kMs);
    EXPECT_FALSE(client.has_event());
  };
  ask(kService);
  ask(kService + 1);
  Id listener = 0;
  ASSERT_EQ(server.manager().listen({.service_id = kService, .user = 7}, listener), 0);
  net.settle();
  EXPECT_EQ(server.next_event().listener_user, 7U);
  EXPECT_FALSE(client.has_event());
  net.run_for(20 * kMs);  // the client's response time-out has passed
  const Event event = client.next_event();
  EXPECT_EQ(event.kind, EventKind::rejected);
  EXPECT_EQ(event.reason, RejectReason::invalid_service_id);
  EXPECT_FALSE(server.has_event());
}

TEST_F(Connection, TheProgramRejects) {
  listen();
  connect();
  static_cast<void>(take_request());
  const auto info = pattern(wire::kRejInfoBytes, 9);
  const auto data = pattern(wire::kRejPrivateBytes, 8);
  ASSERT_EQ(server.manager().reject(passive, RejectReason::consumer_defined, info, data, now()), 0);
  net.settle();
  const Event event = client.next_event();
  EXPECT_EQ(event.kind, EventKind::rejected);
  EXPECT_EQ(event.reason, RejectReason::consumer_defined);
  EXPECT_EQ(bytes_of(event.reject_info), info);
  EXPECT_EQ(bytes_of(event.private_data), data);
  expect_rest();
}

TEST_F(Connection, ARejectionThatIsLostIsSaidAgain) {
  listen();
  net.loses = losing(CmAttribute::rej, 2);
  connect();
  static_cast<void>(take_request());
  ASSERT_EQ(server.manager().reject(passive, RejectReason::no_resources, {}, {}, now()), 0);
  net.run_for(kSecond);
  EXPECT_EQ(client.next_event().reason, RejectReason::no_resources);
  expect_rest();
}

TEST_F(Connection, TheActiveSideRejectsTheReply) {
  listen();
  connect();
  static_cast<void>(take_request());
  accept();
  net.settle();
  ASSERT_EQ(client.next_event().kind, EventKind::replied);
  ASSERT_EQ(client.manager().reject(active, RejectReason::consumer_defined, {}, {}, now()), 0);
  net.settle();
  const Event event = server.next_event();
  EXPECT_EQ(event.kind, EventKind::rejected);
  EXPECT_EQ(event.id, passive);
  expect_rest();
}

TEST_F(Connection, NobodyAnswersAtAll) {
  net.loses = [](const wire::CmMad&) { return true; };
  ConnectParams params = client.request_to(server, kService, 0x111);
  params.timing.remote_response_timeout = 18;  // 1.07 s
  params.timing.max_retries = 3;
  params.path.packet_lifetime = 14;  // 67 ms, twice
  ASSERT_EQ(client.manager().connect(params, now(), active), 0);
  const uint64_t period_ns = (uint64_t{4096} << 18) + 2 * (uint64_t{4096} << 14);
  net.run_for(4 * period_ns - 1);
  expect_no_events();
  net.run_for(1);
  EXPECT_EQ(client.next_event().kind, EventKind::unreachable);
  EXPECT_EQ(client.manager().counters().gave_up, 1U);
  // A REJ is sent to the peer, which may have established the connection.
  const wire::CmRej rej = wire::read_rej(parsed(client.sent.back()));
  EXPECT_EQ(rej.reason, RejectReason::timeout);
  EXPECT_EQ(rej.local_id, active);
  EXPECT_EQ(rej.remote_id, 0U);
  ASSERT_EQ(rej.info.size(), 8U);
  expect_rest();
}

TEST_F(Connection, ThePeerGivesUpBeforeTheProgramAnswers) {
  listen();
  net.loses = [](const wire::CmMad& mad) { return mad.attribute() == CmAttribute::mra; };
  ConnectParams params = client.request_to(server, kService, 0x111);
  params.timing = {.remote_response_timeout = 10, .max_retries = 1};
  params.path.packet_lifetime = 0;
  ASSERT_EQ(client.manager().connect(params, now(), active), 0);
  static_cast<void>(take_request());
  net.run_for(kSecond);
  EXPECT_EQ(client.next_event().kind, EventKind::unreachable);
  const Event event = server.next_event();
  EXPECT_EQ(event.kind, EventKind::rejected);
  EXPECT_EQ(event.reason, RejectReason::timeout);
  EXPECT_EQ(server.manager().accept(passive, {.qpn = 1}, now()), EINVAL);
  expect_rest();
}

TEST_F(Connection, TheReplyIsNotAnswered) {
  listen();
  ConnectParams params = client.request_to(server, kService, 0x111);
  params.timing.local_response_timeout = 18;
  ASSERT_EQ(client.manager().connect(params, now(), active), 0);
  static_cast<void>(take_request());
  net.loses = [](const wire::CmMad& mad) { return mad.attribute() == CmAttribute::rep; };
  accept();
  net.run_for(90 * kSecond);
  EXPECT_EQ(server.next_event().kind, EventKind::unreachable);
  EXPECT_EQ(client.next_event().kind, EventKind::rejected);
  expect_rest();
}

// ---- invalid messages and calls ----

struct BadRequest {
  const char* name;
  void (*spoil)(wire::CmReq& req, std::span<uint8_t> private_data);
  RejectReason reason;
};

class RefusedRequest : public Connection, public testing::WithParamInterface<BadRequest> {};

TEST_P(RefusedRequest, IsRejectedWithItsReason) {
  listen();
  net.loses = [](const wire::CmMad&) { return true; };
  connect();
  wire::CmReq req = wire::read_req(parsed(client.sent[0]));
  std::vector<uint8_t> data(req.private_data.begin(), req.private_data.end());
  GetParam().spoil(req, data);
  req.private_data = data;
  wire::MadBytes mad;
  wire::write(mad, 1, req);
  server.receive(mad, {.reply = server.path_to(client).av}, now());
  EXPECT_FALSE(server.has_event());
  ASSERT_EQ(server.sent.size(), 1U);
  const wire::CmRej rej = wire::read_rej(parsed(server.sent[0]));
  EXPECT_EQ(rej.reason, GetParam().reason);
  EXPECT_EQ(rej.remote_id, active);
  EXPECT_EQ(rej.local_id, 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Requests, RefusedRequest,
    testing::Values(
        BadRequest{"ReliableDatagram",
                   [](wire::CmReq& req, std::span<uint8_t>) { req.transport = wire::CmTransport::rd; },
                   RejectReason::invalid_transport},
        BadRequest{"AnotherSourceGid",
                   [](wire::CmReq& req, std::span<uint8_t>) {
                     req.primary.local_gid = wire::Gid::from_ipv4(0xc6120099);
                   },
                   RejectReason::invalid_gid},
        BadRequest{"AnotherDestinationGid",
                   [](wire::CmReq& req, std::span<uint8_t>) {
                     req.primary.remote_gid = wire::Gid::from_ipv4(0xc6120099);
                   },
                   RejectReason::invalid_gid},
        BadRequest{"NoMtu", [](wire::CmReq& req, std::span<uint8_t>) { req.path_mtu = 0; },
                   RejectReason::invalid_mtu},
        BadRequest{"HugeMtu", [](wire::CmReq& req, std::span<uint8_t>) { req.path_mtu = 6; },
                   RejectReason::invalid_mtu},
        BadRequest{"IpVersion", [](wire::CmReq&, std::span<uint8_t> data) { data[1] = 0x50; },
                   RejectReason::unsupported},
        BadRequest{"HeaderVersion", [](wire::CmReq&, std::span<uint8_t> data) { data[0] = 1; },
                   RejectReason::unsupported},
        BadRequest{"SomebodyElsesIp", [](wire::CmReq&, std::span<uint8_t> data) { data[19] ^= 1; },
                   RejectReason::invalid_gid}),
    [](const auto& request) { return request.param.name; });

TEST_F(Connection, AWiderMtuThanOurPortsIsRejected) {
  Node& narrow = net.add({.max_mtu = transport::PathMtu::mtu1024});
  ASSERT_EQ(narrow.manager().listen({.service_id = kService}, listener), 0);
  ASSERT_EQ(client.manager().connect(client.request_to(narrow, kService, 1), now(), active), 0);
  net.settle();
  const Event event = client.next_event();
  EXPECT_EQ(event.reason, RejectReason::invalid_mtu);
  EXPECT_EQ(bytes_of(event.reject_info), std::vector<uint8_t>{3 << 4});
}

// A message of a connection is accepted only from its peer.
TEST_F(Connection, OthersMessagesAreDropped) {
  listen();
  establish();
  Node& other = net.add();
  const auto drops = [this](DropReason reason) {
    return server.manager().counters().drops[static_cast<size_t>(reason)];
  };
  wire::MadBytes mad;
  wire::write(mad, 1, wire::CmDreq{.local_id = active, .remote_id = passive, .remote_qpn = 0x222});
  server.receive(mad, {.reply = server.path_to(other).av}, now());
  EXPECT_EQ(drops(DropReason::wrong_peer), 1U);
  server.receive(mad, {.reply = server.path_to(client).av, .source_qpn = 17}, now());
  EXPECT_EQ(drops(DropReason::source_qpn), 1U);
  wire::write(mad, 1, wire::CmDreq{.local_id = active + 1, .remote_id = passive, .remote_qpn = 0x222});
  server.receive(mad, {.reply = server.path_to(client).av}, now());
  wire::write(mad, 1, wire::CmDreq{.local_id = active, .remote_id = passive, .remote_qpn = 0x223});
  server.receive(mad, {.reply = server.path_to(client).av}, now());
  EXPECT_EQ(drops(DropReason::wrong_peer), 3U);
  wire::write(mad, 1, wire::CmRej{.local_id = active, .remote_id = 0, .reason = RejectReason::timeout});
  server.receive(mad, {.reply = server.path_to(client).av}, now());
  EXPECT_EQ(drops(DropReason::unknown_id), 1U);
  EXPECT_EQ(server.manager().state(passive), State::established);
  expect_no_events();
}

TEST_F(Connection, StrangersAreAnsweredSoThatTheyNeedNotWait) {
  wire::MadBytes mad;
  wire::write(mad, 1, wire::CmDreq{.local_id = 7, .remote_id = 8, .remote_qpn = 9});
  server.receive(mad, {.reply = server.path_to(client).av}, now());
  ASSERT_EQ(server.sent.size(), 1U);
  EXPECT_EQ(wire::read_drep(parsed(server.sent[0])).remote_id, 7U);
  wire::write(mad, 1, wire::CmRep{.local_id = 7, .remote_id = 8});
  server.receive(mad, {.reply = server.path_to(client).av}, now());
  ASSERT_EQ(server.sent.size(), 2U);
  EXPECT_EQ(wire::read_rej(parsed(server.sent[1])).reason, RejectReason::invalid_communication_id);
  // A response never causes a response.
  wire::write(mad, 1, wire::CmRej{.local_id = 7, .remote_id = 8});
  server.receive(mad, {.reply = server.path_to(client).av}, now());
  wire::write(mad, 1, wire::CmDrep{.local_id = 7, .remote_id = 8});
  server.receive(mad, {.reply = server.path_to(client).av}, now());
  wire::write(mad, 1, wire::CmMra{.local_id = 7, .remote_id = 8});
  server.receive(mad, {.reply = server.path_to(client).av}, now());
  wire::write(mad, 1, wire::CmRtu{.local_id = 7, .remote_id = 8});
  server.receive(mad, {.reply = server.path_to(client).av}, now());
  EXPECT_EQ(server.sent.size(), 2U);
}

}  // namespace
}  // namespace faultline::cm::test::connection_test
