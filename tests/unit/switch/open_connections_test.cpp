// SPDX-License-Identifier: BSD-3-Clause
// A switch's record of connections, and what it sends on behalf of a program that has ended.
#include "apps/switch/open_connections.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "stack/wire/packet/frame.hpp"

namespace faultline::switching::open_connections_test {
namespace {

using wire::CmAttribute;
using wire::Gid;
using Frame = std::vector<uint8_t>;

constexpr PortIndex kClient = 1, kServer = 2, kStranger = 3;
constexpr uint32_t kClientIp = 0xc6120001, kServerIp = 0xc6120002, kStrangerIp = 0xc6120003;
constexpr uint32_t kClientQpn = 0x111, kServerQpn = 0x222;

class Connections : public testing::Test {
 protected:
  static Frame frame_of(uint32_t from, uint32_t to, const wire::MadBytes& mad) {
    wire::PathHeader path;
    path.source_gid = Gid::from_ipv4(from);
    path.destination_gid = Gid::from_ipv4(to);
    const wire::FrameTemplate made(path);
    wire::PacketFields fields;
    fields.bth.opcode = wire::Opcode::ud_send_only;
    fields.bth.destination_qpn = wire::kManagementQpn;
    Frame frame(made.frame_bytes(fields.bth.opcode, wire::kMadBytes));
    uint8_t* at = made.write_headers(frame, fields, wire::kMadBytes);
    std::copy(mad.begin(), mad.end(), at);
    made.seal(frame, fields.bth.opcode, wire::kMadBytes);
    return frame;
  }
  template <typename Message>
  void pass(PortIndex port, uint32_t from, uint32_t to, const Message& message) {
    wire::MadBytes mad;
    wire::write(mad, 7, message);
    const Frame frame = frame_of(from, to, mad);
    const auto seen = wire::peek_cm_message(frame);
    ASSERT_TRUE(seen);
    connections.note(frame, *seen, port);
  }
  void request(uint32_t id, PortIndex port = kClient, uint32_t from = kClientIp) {
    pass(port, from, kServerIp, wire::CmReq{.local_id = id, .qpn = kClientQpn});
  }
  void reply(uint32_t id, uint32_t remote_id, PortIndex port = kServer, uint32_t from = kServerIp) {
    pass(port, from, kClientIp, wire::CmRep{.local_id = id, .remote_id = remote_id, .qpn = kServerQpn});
  }
  void connect() {
    request(10);
    reply(20, 10);
    pass(kClient, kClientIp, kServerIp, wire::CmRtu{.local_id = 10, .remote_id = 20});
  }
  std::vector<Frame> end(PortIndex port) {
    std::vector<Frame> sent;
    connections.end(port,
                    [&](std::span<const uint8_t> frame) { sent.emplace_back(frame.begin(), frame.end()); });
    return sent;
  }
  static void expect_dreq(const Frame& frame, uint32_t from, uint32_t to, const wire::CmDreq& wanted) {
    EXPECT_EQ(wire::peek_source_gid(frame), Gid::from_ipv4(from));
    EXPECT_EQ(wire::peek_destination_gid(frame), Gid::from_ipv4(to));
    // A receiver accepts it as a complete packet: length, ICRC and all.
    wire::Packet packet;
    EXPECT_EQ(wire::parse(frame, packet), wire::ParseError::none);
    EXPECT_TRUE(wire::icrc_matches(packet));
    const auto message = wire::peek_cm_message(frame);
    ASSERT_TRUE(message);
    ASSERT_EQ(message->attribute(), CmAttribute::dreq);
    const wire::CmDreq dreq = wire::read_dreq(*message);
    EXPECT_EQ(dreq.local_id, wanted.local_id);
    EXPECT_EQ(dreq.remote_id, wanted.remote_id);
    EXPECT_EQ(dreq.remote_qpn, wanted.remote_qpn);
  }

  OpenConnections connections;
};

TEST_F(Connections, APassiveSideThatDiesDisconnects) {
  connect();
  const auto sent = end(kServer);
  ASSERT_EQ(sent.size(), 1U);
  expect_dreq(sent[0], kServerIp, kClientIp, {.local_id = 20, .remote_id = 10, .remote_qpn = kClientQpn});
  EXPECT_EQ(connections.count(), 0U);
  EXPECT_TRUE(end(kClient).empty()) << "nobody is there any more";
}

TEST_F(Connections, AnActiveSideThatDiesDisconnects) {
  connect();
  const auto sent = end(kClient);
  ASSERT_EQ(sent.size(), 1U);
  expect_dreq(sent[0], kClientIp, kServerIp, {.local_id = 10, .remote_id = 20, .remote_qpn = kServerQpn});
}

TEST_F(Connections, AnXrcTargetHasItsQpnInTheEecn) {
  request(10);
  pass(kServer, kServerIp, kClientIp, wire::CmRep{.local_id = 20, .remote_id = 10, .eecn = 0x333});
  const auto sent = end(kClient);
  ASSERT_EQ(sent.size(), 1U);
  expect_dreq(sent[0], kClientIp, kServerIp, {.local_id = 10, .remote_id = 20, .remote_qpn = 0x333});
}

TEST_F(Connections, ThatHaveEndedAreForgotten) {
  connect();
  pass(kClient, kClientIp, kServerIp,
       wire::CmDreq{.local_id = 10, .remote_id = 20, .remote_qpn = kServerQpn});
  EXPECT_EQ(connections.count(), 0U);
  connect();
  pass(kServer, kServerIp, kClientIp,
       wire::CmDreq{.local_id = 20, .remote_id = 10, .remote_qpn = kClientQpn});
  EXPECT_EQ(connections.count(), 0U);
  request(11);
  pass(kServer, kServerIp, kClientIp, wire::CmRej{.local_id = 0, .remote_id = 11});
  EXPECT_EQ(connections.count(), 0U);
  connect();
  pass(kClient, kClientIp, kServerIp, wire::CmRej{.local_id = 10, .remote_id = 20});
  EXPECT_EQ(connections.count(), 0U);
  EXPECT_TRUE(end(kClient).empty());
  EXPECT_TRUE(end(kServer).empty());
}

TEST_F(Connections, ARequestAloneHasNoPeerToTell) {
  request(10);
  EXPECT_TRUE(end(kClient).empty());
  EXPECT_EQ(connections.count(), 0U);
}

TEST_F(Connections, AStrangerNeitherAnswersNorEndsThem) {
  request(10);
  reply(30, 10, kStranger, kStrangerIp);
  EXPECT_TRUE(end(kStranger).empty());
  reply(20, 10);
  pass(kStranger, kStrangerIp, kClientIp, wire::CmRej{.local_id = 20, .remote_id = 10});
  pass(kStranger, kStrangerIp, kClientIp,
       wire::CmDreq{.local_id = 20, .remote_id = 10, .remote_qpn = kClientQpn});
  EXPECT_EQ(end(kServer).size(), 1U);
}

TEST_F(Connections, OfAProgramWithItselfNeedNoDreq) {
  request(10);
  reply(20, 10, kClient);
  EXPECT_TRUE(end(kClient).empty());
  EXPECT_EQ(connections.count(), 0U);
}

TEST_F(Connections, HaveABoundForEachPort) {
  for (uint32_t id = 1; id <= OpenConnections::kMostOfAPort + 10; ++id) request(id);
  EXPECT_EQ(connections.count(), OpenConnections::kMostOfAPort);
  request(1, kStranger, kStrangerIp);
  EXPECT_EQ(connections.count(), OpenConnections::kMostOfAPort + 1);
  EXPECT_TRUE(end(kClient).empty());
  EXPECT_EQ(connections.count(), 1U);
}

}  // namespace
}  // namespace faultline::switching::open_connections_test
