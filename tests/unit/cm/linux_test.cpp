// SPDX-License-Identifier: BSD-3-Clause
// Compares with recorded Linux traffic: our manager in place of either host sends the same bytes and accepts
// the other host's.
#include <algorithm>

#include <gtest/gtest.h>

#include "stack/cm/manager.hpp"
#include "stack/wire/mad/mad_cm.hpp"
#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/packet.hpp"
#include "tests/unit/wire/capture.hpp"

namespace faultline::cm::test::linux_test {
namespace {

struct Message {
  wire::MadBytes mad;
  MadSource source;  ///< as the receiver sees it
};

/// The messages of a capture to QP1, and the first PSN of each side of the connection.
struct Dialogue {
  std::vector<Message> messages;
  std::map<uint32_t, uint32_t> first_psns;  ///< by destination QPN and sender, see key()
  static uint32_t key(const wire::Gid& sender) { return wire::load_be32(&sender.bytes[12]); }
};

Dialogue read_dialogue(const std::string& file) {
  Dialogue dialogue;
  for (const wire::test::Frame& frame : wire::test::read_capture(wire::test::golden_directory() / file)) {
    wire::Packet packet;
    if (wire::classify(frame) != wire::FrameKind::roce ||
        wire::parse(frame, packet) != wire::ParseError::none)
      continue;
    if (packet.bth.destination_qpn != wire::kManagementQpn) {
      if (packet.info->request && packet.info->service == wire::Service::rc)
        dialogue.first_psns.emplace(Dialogue::key(packet.source_gid()), packet.bth.psn.value());
      continue;
    }
    Message message;
    std::copy(packet.payload().begin(), packet.payload().end(), message.mad.begin());
    wire::PathHeader& back = message.source.reply.path;
    back.source_mac = packet.destination_mac();
    back.destination_mac = packet.source_mac();
    back.source_gid = packet.destination_gid();
    back.destination_gid = packet.source_gid();
    dialogue.messages.push_back(message);
  }
  return dialogue;
}

wire::CmMad parsed(const wire::MadBytes& bytes) {
  wire::CmMad mad;
  EXPECT_EQ(wire::CmMad::parse(bytes, mad), wire::MadError::none);
  return mad;
}

class Recorder final : public MadSender {
 public:
  void send_mad(const wire::MadBytes& mad, const transport::AddressVector& /*to*/,
                uint16_t /*pkey*/) override {
    sent.push_back(mad);
  }
  std::vector<wire::MadBytes> sent;
};

/// Compares without the transaction ID, which the sender chooses freely.
void expect_same(const wire::MadBytes& ours, const wire::MadBytes& theirs, const char* what) {
  wire::MadBytes a = ours, b = theirs;
  std::fill_n(a.begin() + 8, 8, uint8_t{0});
  std::fill_n(b.begin() + 8, 8, uint8_t{0});
  EXPECT_EQ(a, b) << what;
}

class Linux : public testing::TestWithParam<const char*> {
 protected:
  const Dialogue dialogue_ = read_dialogue(GetParam());
  Recorder recorder_;
  static constexpr TimeNs kNow = 1'000'000'000;

  /// A manager whose next communication ID is `id`.
  [[nodiscard]] static ManagerConfig config(uint32_t id, uint64_t guid) {
    return {.ca_guid = guid, .seed = id - 1};
  }
};

TEST_P(Linux, OurActiveSideSaysTheSame) {
  const auto& [messages, first_psns] = dialogue_;
  ASSERT_EQ(messages.size(), 5U);
  const wire::CmReq req = wire::read_req(parsed(messages[0].mad));
  Manager manager(config(req.local_id, req.ca_guid), recorder_);
  ConnectParams params;
  params.service_id = req.service_id;
  wire::PathHeader& path = params.path.av.path;
  // The same two hosts, in the opposite direction.
  path.source_gid = messages[0].source.reply.path.destination_gid;
  path.destination_gid = messages[0].source.reply.path.source_gid;
  path.flow_label = req.primary.flow_label;
  params.path.mtu = static_cast<transport::PathMtu>(req.path_mtu);
  params.qpn = req.qpn;
  params.starting_psn = req.starting_psn;
  params.responder_resources = req.responder_resources;
  params.initiator_depth = req.initiator_depth;
  params.flow_control = req.flow_control;
  params.retry_count = req.retry_count;
  params.rnr_retry_count = req.rnr_retry_count;
  params.ip = wire::read_ip_addressing(req.private_data.first<wire::kIpAddressingBytes>());
  params.private_data = req.private_data.subspan<wire::kIpAddressingBytes>();
  Id id = 0;
  ASSERT_EQ(manager.connect(params, kNow, id), 0);
  EXPECT_EQ(id, req.local_id);
  expect_same(recorder_.sent.back(), messages[0].mad, "REQ");

  manager.on_mad(messages[1].mad, messages[1].source, kNow);
  Event event;
  ASSERT_TRUE(manager.take_event(event));
  EXPECT_EQ(event.kind, EventKind::replied);
  ASSERT_EQ(manager.confirm(id, wire::read_rtu(parsed(messages[2].mad)).private_data, kNow), 0);
  expect_same(recorder_.sent.back(), messages[2].mad, "RTU");
  // The connection's own packets begin with the PSNs that were exchanged.
  QpSettings settings;
  ASSERT_TRUE(manager.settings(id, settings));
  if (const auto psn = first_psns.find(Dialogue::key(path.source_gid)); psn != first_psns.end()) {
    EXPECT_EQ(settings.sq_psn, psn->second);
  }
  if (const auto psn = first_psns.find(Dialogue::key(path.destination_gid)); psn != first_psns.end()) {
    EXPECT_EQ(settings.rq_psn, psn->second);
  }

  const bool ours_ends = messages[3].source.reply.path.destination_gid == path.source_gid;
  if (ours_ends) {
    ASSERT_EQ(manager.disconnect(id, {}, kNow), 0);
    expect_same(recorder_.sent.back(), messages[3].mad, "DREQ");
    manager.on_mad(messages[4].mad, messages[4].source, kNow);
  } else {
    manager.on_mad(messages[3].mad, messages[3].source, kNow);
    ASSERT_EQ(manager.disconnect(id, {}, kNow), 0);
    expect_same(recorder_.sent.back(), messages[4].mad, "DREP");
  }
  ASSERT_TRUE(manager.take_event(event));
  EXPECT_EQ(event.kind, EventKind::disconnected);
  EXPECT_EQ(manager.state(id), State::time_wait);
}

TEST_P(Linux, OurPassiveSideSaysTheSame) {
  const auto& [messages, first_psns] = dialogue_;
  ASSERT_EQ(messages.size(), 5U);
  const wire::CmRep rep = wire::read_rep(parsed(messages[1].mad));
  Manager manager(config(rep.local_id - 1, rep.ca_guid), recorder_);
  Id listener = 0;
  ASSERT_EQ(manager.listen({.service_id = wire::read_req(parsed(messages[0].mad)).service_id}, listener), 0);
  manager.on_mad(messages[0].mad, messages[0].source, kNow);
  Event event;
  ASSERT_TRUE(manager.take_event(event));
  EXPECT_EQ(event.kind, EventKind::requested);
  EXPECT_EQ(event.id, rep.local_id);
  EXPECT_TRUE(event.ip);
  ASSERT_EQ(manager.accept(event.id,
                           {.qpn = rep.qpn,
                            .starting_psn = rep.starting_psn,
                            .responder_resources = rep.responder_resources,
                            .initiator_depth = rep.initiator_depth,
                            .flow_control = rep.flow_control,
                            .rnr_retry_count = rep.rnr_retry_count,
                            .target_ack_delay = rep.target_ack_delay,
                            .srq = rep.srq,
                            .private_data = rep.private_data},
                           kNow),
            0);
  EXPECT_EQ(recorder_.sent.back(), messages[1].mad) << "REP, its transaction the REQ's";
  manager.on_mad(messages[2].mad, messages[2].source, kNow);
  ASSERT_TRUE(manager.take_event(event));
  EXPECT_EQ(event.kind, EventKind::established);
  QpSettings settings;
  ASSERT_TRUE(manager.settings(rep.local_id, settings));
  const uint32_t peer = Dialogue::key(messages[0].source.reply.path.destination_gid);
  if (const auto psn = first_psns.find(peer); psn != first_psns.end()) {
    EXPECT_EQ(settings.rq_psn, psn->second);
  }
}

INSTANTIATE_TEST_SUITE_P(Captures, Linux,
                         testing::Values("cm_rping.pcap", "cm_rping_ipv6.pcap", "cm_ucmatose.pcap"),
                         [](const auto& file) {
                           const std::string name = file.param;
                           return name.substr(0, name.find('.'));
                         });

TEST(LinuxRejects, IsTold) {
  const Dialogue dialogue = read_dialogue("cm_reject.pcap");
  const wire::CmReq req = wire::read_req(parsed(dialogue.messages[0].mad));
  Recorder recorder;
  // As the passive side, without a listener.
  Manager passive({.ca_guid = 1}, recorder);
  passive.on_mad(dialogue.messages[0].mad, dialogue.messages[0].source, 1);
  EXPECT_EQ(recorder.sent.back(), dialogue.messages[1].mad);
  // As the active side.
  Manager active({.ca_guid = req.ca_guid, .seed = req.local_id - 1}, recorder);
  ConnectParams params;
  params.service_id = req.service_id;
  params.path.av = dialogue.messages[1].source.reply;
  params.ip = wire::read_ip_addressing(req.private_data.first<wire::kIpAddressingBytes>());
  Id id = 0;
  ASSERT_EQ(active.connect(params, 1, id), 0);
  active.on_mad(dialogue.messages[1].mad, dialogue.messages[1].source, 2);
  Event event;
  ASSERT_TRUE(active.take_event(event));
  EXPECT_EQ(event.kind, EventKind::rejected);
  EXPECT_EQ(event.reason, wire::RejectReason::invalid_service_id);
}

TEST(LinuxResolves, Services) {
  const Dialogue dialogue = read_dialogue("cm_udaddy.pcap");
  const wire::CmSidrReq request = wire::read_sidr_req(parsed(dialogue.messages[0].mad));
  const wire::CmSidrRep answer = wire::read_sidr_rep(parsed(dialogue.messages[1].mad));
  Recorder recorder;
  Manager active({.seed = request.request_id - 1}, recorder);
  ResolveParams params;
  params.service_id = request.service_id;
  params.path.av = dialogue.messages[1].source.reply;
  params.ip = wire::read_ip_addressing(request.private_data.first<wire::kIpAddressingBytes>());
  params.private_data = request.private_data.subspan<wire::kIpAddressingBytes>();
  Id id = 0;
  ASSERT_EQ(active.resolve(params, 1, id), 0);
  expect_same(recorder.sent.back(), dialogue.messages[0].mad, "SIDR_REQ");
  active.on_mad(dialogue.messages[1].mad, dialogue.messages[1].source, 2);
  Event event;
  ASSERT_TRUE(active.take_event(event));
  EXPECT_EQ(event.kind, EventKind::service_resolved);
  EXPECT_EQ(event.remote_qpn, answer.qpn);
  EXPECT_EQ(event.remote_qkey, answer.qkey);

  Manager passive({.seed = 5}, recorder);
  Id listener = 0;
  ASSERT_EQ(passive.listen({.service_id = request.service_id}, listener), 0);
  passive.on_mad(dialogue.messages[0].mad, dialogue.messages[0].source, 1);
  ASSERT_TRUE(passive.take_event(event));
  ASSERT_EQ(passive.answer(event.id,
                           {.qpn = answer.qpn, .qkey = answer.qkey, .private_data = answer.private_data}, 2),
            0);
  EXPECT_EQ(recorder.sent.back(), dialogue.messages[1].mad);
}

}  // namespace
}  // namespace faultline::cm::test::linux_test
