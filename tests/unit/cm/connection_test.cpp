// SPDX-License-Identifier: BSD-3-Clause
// Connections between two managers: what each side is told, whatever message gets lost or comes twice.
#include <cerrno>

#include <gtest/gtest.h>

#include "tests/unit/cm/network.hpp"

namespace faultline::cm::test {
namespace {

using wire::CmAttribute;
using wire::RejectReason;

constexpr uint64_t kService = wire::ip_service_id(0x0106, 7174);
constexpr uint64_t kPlainService = 0x00000000cafe0000;

std::vector<uint8_t> bytes_of(const PrivateData& data) {
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
  /// Runs until the server has been asked, and takes note of it.
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
  /// All that was under way has ended, and nothing of it is left.
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

// The peer may not raise what it was offered (IBA 12.7.29).
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
  net.run_for(20 * kMs);  // the other's patience is at its end
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
  // The peer is told, who may have made a connection of it.
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

// ---- what is not as it should be ----

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

// A message of a connection is its peer's alone.
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
  // Never an answer to an answer.
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

// ---- programs that take their time ----

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

// Whatever state it is in, the peer learns of it, and nothing is left.
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

TEST_F(Connection, AQpnThatRestsIsStale) {
  listen();
  establish(0x111, 0x222);
  ASSERT_EQ(client.manager().disconnect(active, {}, now()), 0);
  net.settle();
  static_cast<void>(server.next_event());
  server.manager().destroy(passive, now());
  net.settle();
  client.manager().destroy(active, now());
  connect(0x111);
  net.settle();
  EXPECT_EQ(client.next_event().reason, RejectReason::stale_connection);
  net.run_for(20 * kSecond);
  establish(0x111, 0x222);
}

// The peer has forgotten the connection, as after a crash, and its QPN comes again.
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
  // The old one says good-bye, and whoever knows nothing of it answers.
  ASSERT_EQ(parsed(server.sent[2]).attribute(), CmAttribute::dreq);
  reborn.receive(server.sent[2], {.reply = reborn.path_to(peer).av}, now());
  ASSERT_EQ(reborn.sent_attributes().back(), CmAttribute::drep);
  server.receive(reborn.sent.back(), {.reply = server.path_to(client).av}, now());
  const Event event = server.next_event();
  EXPECT_EQ(event.kind, EventKind::disconnected);
  EXPECT_EQ(event.id, forgotten);
  EXPECT_EQ(server.manager().counters().stale, 1U);
}

// Found by the fuzzer: nothing may stay behind of a request that names no QP.
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
  // The third asks again by itself.
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
  // Another process has it: nobody listens here then.
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
}  // namespace faultline::cm::test
