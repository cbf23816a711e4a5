// SPDX-License-Identifier: BSD-3-Clause
// The communication manager's messages. Linux's messages are read and written again byte for byte; bits are
// placed as in the specification's tables; other messages are rejected.
#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "stack/wire/mad/mad_cm.hpp"
#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/packet.hpp"
#include "tests/unit/wire/capture.hpp"

namespace faultline::wire::test::mad_test {
namespace {

/// Returns the datagrams of a capture that were sent to QP1.
std::vector<MadBytes> mads_of(const std::string& file) {
  std::vector<MadBytes> mads;
  for (const Frame& frame : read_capture(golden_directory() / file)) {
    Packet packet;
    if (classify(frame) != FrameKind::roce || parse(frame, packet) != ParseError::none) continue;
    if (packet.bth.destination_qpn != kManagementQpn) continue;
    EXPECT_EQ(packet.deth().qkey, kManagementQkey);
    EXPECT_EQ(packet.deth().source_qpn, kManagementQpn);
    EXPECT_EQ(packet.payload_bytes, kMadBytes);
    MadBytes bytes;
    std::copy(packet.payload().begin(), packet.payload().end(), bytes.begin());
    mads.push_back(bytes);
  }
  return mads;
}

CmMad parsed(const MadBytes& bytes) {
  CmMad mad;
  EXPECT_EQ(CmMad::parse(bytes, mad), MadError::none);
  return mad;
}

MadBytes rewritten(const CmMad& mad) {
  MadBytes bytes;
  bytes.fill(0xee);
  const uint64_t tid = mad.transaction_id();
  switch (mad.attribute()) {
    case CmAttribute::req:
      write(bytes, tid, read_req(mad));
      break;
    case CmAttribute::mra:
      write(bytes, tid, read_mra(mad));
      break;
    case CmAttribute::rej:
      write(bytes, tid, read_rej(mad));
      break;
    case CmAttribute::rep:
      write(bytes, tid, read_rep(mad));
      break;
    case CmAttribute::rtu:
      write(bytes, tid, read_rtu(mad));
      break;
    case CmAttribute::dreq:
      write(bytes, tid, read_dreq(mad));
      break;
    case CmAttribute::drep:
      write(bytes, tid, read_drep(mad));
      break;
    case CmAttribute::sidr_req:
      write(bytes, tid, read_sidr_req(mad));
      break;
    case CmAttribute::sidr_rep:
      write(bytes, tid, read_sidr_rep(mad));
      break;
  }
  return bytes;
}

const std::map<std::string, std::vector<CmAttribute>> kDialogues{
    {"cm_rping.pcap",
     {CmAttribute::req, CmAttribute::rep, CmAttribute::rtu, CmAttribute::dreq, CmAttribute::drep}},
    {"cm_rping_ipv6.pcap",
     {CmAttribute::req, CmAttribute::rep, CmAttribute::rtu, CmAttribute::dreq, CmAttribute::drep}},
    {"cm_ucmatose.pcap",
     {CmAttribute::req, CmAttribute::rep, CmAttribute::rtu, CmAttribute::dreq, CmAttribute::drep}},
    {"cm_udaddy.pcap", {CmAttribute::sidr_req, CmAttribute::sidr_rep}},
    {"cm_reject.pcap", {CmAttribute::req, CmAttribute::rej}}};

TEST(GoldenMads, AreRewrittenFromTheirMeaning) {
  for (const auto& [file, expected] : kDialogues) {
    std::vector<CmAttribute> attributes;
    for (const MadBytes& bytes : mads_of(file)) {
      const CmMad mad = parsed(bytes);
      attributes.push_back(mad.attribute());
      EXPECT_EQ(rewritten(mad), bytes) << file << " message " << attributes.size();
    }
    EXPECT_EQ(attributes, expected) << file;
  }
}

// tshark shows the same values.
TEST(GoldenMads, SayWhatRpingAskedFor) {
  const std::vector<MadBytes> mads = mads_of("cm_rping.pcap");
  ASSERT_EQ(mads.size(), 5U);
  const CmReq req = read_req(parsed(mads[0]));
  EXPECT_EQ(parsed(mads[0]).transaction_id(), 0x2c177987fU);
  EXPECT_EQ(req.local_id, 0x7f9877c1U);
  EXPECT_EQ(req.service_id, ip_service_id(0x0106, 7174));
  EXPECT_TRUE(is_ip_service(req.service_id));
  EXPECT_EQ(req.ca_guid, 0x505400fffe0eb3a7U);
  EXPECT_EQ(req.qpn, 0x23U);
  EXPECT_EQ(req.responder_resources, 1);
  EXPECT_EQ(req.initiator_depth, 1);
  EXPECT_EQ(req.remote_response_timeout, 20);
  EXPECT_EQ(req.local_response_timeout, 20);
  EXPECT_EQ(req.transport, CmTransport::rc);
  EXPECT_FALSE(req.flow_control);
  EXPECT_EQ(req.starting_psn, 0xbfab57U);
  EXPECT_EQ(req.retry_count, 7);
  EXPECT_EQ(req.rnr_retry_count, 7);
  EXPECT_EQ(req.path_mtu, 5);
  EXPECT_EQ(req.max_cm_retries, 15);
  EXPECT_FALSE(req.srq);
  EXPECT_EQ(req.primary.local_gid, Gid::from_ipv4(0xc000020b));
  EXPECT_EQ(req.primary.remote_gid, Gid::from_ipv4(0xc000020c));
  EXPECT_EQ(req.primary.flow_label, 0x1d86fU);  // tshark is eight bits off here and at the rate
  EXPECT_EQ(req.primary.rate, 0);               // "whatever the port has"
  EXPECT_EQ(req.primary.hop_limit, 64);
  EXPECT_EQ(req.primary.local_ack_timeout, 17);
  const auto ip = read_ip_addressing(req.private_data.first<kIpAddressingBytes>());
  ASSERT_TRUE(ip);
  EXPECT_EQ(ip->source, Gid::from_ipv4(0xc000020b));
  EXPECT_EQ(ip->destination, Gid::from_ipv4(0xc000020c));
  EXPECT_EQ(ip->source_port, 0x9277);

  const CmRep rep = read_rep(parsed(mads[1]));
  EXPECT_EQ(rep.local_id, 0x9899854fU);
  EXPECT_EQ(rep.remote_id, req.local_id);
  EXPECT_EQ(rep.qpn, 0x23U);
  EXPECT_EQ(rep.starting_psn, 0xbd3fbdU);
  EXPECT_EQ(rep.target_ack_delay, 15);
  EXPECT_EQ(rep.rnr_retry_count, 7);
  EXPECT_EQ(rep.ca_guid, 0x505400fffe67462eU);
  EXPECT_EQ(read_dreq(parsed(mads[3])).remote_qpn, rep.qpn);
}

TEST(GoldenMads, SayWhatUdaddyAskedFor) {
  const std::vector<MadBytes> mads = mads_of("cm_udaddy.pcap");
  ASSERT_EQ(mads.size(), 2U);
  const CmSidrReq request = read_sidr_req(parsed(mads[0]));
  EXPECT_EQ(request.service_id, ip_service_id(0x0111, 7174));
  EXPECT_EQ(request.pkey, 0xffff);
  ASSERT_TRUE(read_ip_addressing(request.private_data.first<kIpAddressingBytes>()));
  const CmSidrRep answer = read_sidr_rep(parsed(mads[1]));
  EXPECT_EQ(answer.request_id, request.request_id);
  EXPECT_EQ(answer.status, SidrStatus::valid);
  EXPECT_EQ(answer.qpn, 0x25U);
  EXPECT_EQ(answer.qkey, 0x01234567U);
  EXPECT_EQ(answer.service_id, request.service_id);
}

TEST(GoldenMads, IpAddressingIsRewritten) {
  for (const char* file : {"cm_rping.pcap", "cm_rping_ipv6.pcap", "cm_udaddy.pcap"}) {
    const MadBytes bytes = mads_of(file).front();
    const CmMad mad = parsed(bytes);
    const std::span<const uint8_t> data =
        mad.attribute() == CmAttribute::req ? read_req(mad).private_data : read_sidr_req(mad).private_data;
    const auto header = data.first<kIpAddressingBytes>();
    const auto ip = read_ip_addressing(header);
    ASSERT_TRUE(ip) << file;
    std::array<uint8_t, kIpAddressingBytes> again;
    again.fill(0xee);
    write_ip_addressing(again, *ip);
    EXPECT_TRUE(std::equal(again.begin(), again.end(), header.begin())) << file;
  }
}

// A switch that steers messages among processes needs only these fields to find the receiver.
TEST(GoldenMads, TellTheirReceiver) {
  const std::vector<MadBytes> rping = mads_of("cm_rping.pcap");
  EXPECT_EQ(receiver_id(parsed(rping[0])), std::nullopt);
  EXPECT_EQ(service_id(parsed(rping[0])), ip_service_id(0x0106, 7174));
  EXPECT_EQ(receiver_id(parsed(rping[1])), 0x7f9877c1U);
  EXPECT_EQ(receiver_id(parsed(rping[2])), 0x9899854fU);
  EXPECT_EQ(service_id(parsed(rping[2])), std::nullopt);
  EXPECT_EQ(receiver_id(parsed(mads_of("cm_reject.pcap")[1])), 0x7b9877c1U);
  const std::vector<MadBytes> udaddy = mads_of("cm_udaddy.pcap");
  EXPECT_EQ(service_id(parsed(udaddy[0])), ip_service_id(0x0111, 7174));
  EXPECT_EQ(receiver_id(parsed(udaddy[1])), 0x7d9877c1U);
}

// Sets each field alone to all ones, so that a wrong shift or width shows: the field reads back as written,
// and its neighbours are still zero.
TEST(Mads, FieldsDoNotOverlap) {
  const auto check_req = [](auto set) {
    CmReq req;
    req.pkey = 0;
    req.primary.local_lid = req.primary.remote_lid = 0;
    set(req);
    MadBytes bytes;
    write(bytes, 0, req);
    MadBytes again;
    write(again, 0, read_req(parsed(bytes)));
    EXPECT_EQ(again, bytes);
    int ones = 0;
    for (size_t i = kMadHeaderBytes; i < kMadBytes; ++i) ones += __builtin_popcount(bytes[i]);
    return ones;
  };
  EXPECT_EQ(check_req([](CmReq& req) { req.qpn = 0xffffff; }), 24);
  EXPECT_EQ(check_req([](CmReq& req) { req.responder_resources = 0xff; }), 8);
  EXPECT_EQ(check_req([](CmReq& req) { req.local_eecn = 0xffffff; }), 24);
  EXPECT_EQ(check_req([](CmReq& req) { req.remote_eecn = 0xffffff; }), 24);
  EXPECT_EQ(check_req([](CmReq& req) { req.initiator_depth = 0xff; }), 8);
  EXPECT_EQ(check_req([](CmReq& req) { req.remote_response_timeout = 31; }), 5);
  EXPECT_EQ(check_req([](CmReq& req) { req.local_response_timeout = 31; }), 5);
  EXPECT_EQ(check_req([](CmReq& req) { req.transport = CmTransport::uc; }), 1);
  EXPECT_EQ(check_req([](CmReq& req) { req.transport = CmTransport::xrc; }), 3);
  EXPECT_EQ(check_req([](CmReq& req) { req.flow_control = true; }), 1);
  EXPECT_EQ(check_req([](CmReq& req) { req.starting_psn = 0xffffff; }), 24);
  EXPECT_EQ(check_req([](CmReq& req) { req.retry_count = 7; }), 3);
  EXPECT_EQ(check_req([](CmReq& req) { req.rnr_retry_count = 7; }), 3);
  EXPECT_EQ(check_req([](CmReq& req) { req.path_mtu = 15; }), 4);
  EXPECT_EQ(check_req([](CmReq& req) { req.rdc_exists = true; }), 1);
  EXPECT_EQ(check_req([](CmReq& req) { req.max_cm_retries = 15; }), 4);
  EXPECT_EQ(check_req([](CmReq& req) { req.srq = true; }), 1);
  EXPECT_EQ(check_req([](CmReq& req) { req.primary.flow_label = 0xfffff; }), 20);
  EXPECT_EQ(check_req([](CmReq& req) { req.primary.rate = 0x3f; }), 6);
  EXPECT_EQ(check_req([](CmReq& req) { req.primary.sl = 15; }), 4);
  EXPECT_EQ(check_req([](CmReq& req) { req.primary.subnet_local = true; }), 1);
  EXPECT_EQ(check_req([](CmReq& req) { req.alternate.local_ack_timeout = 31; }), 5);
  EXPECT_EQ(check_req([](CmReq& req) { req.alternate.hop_limit = 0xff; }), 8);
}

template <typename Message>
void expect_private_data_survives(Message message, size_t bytes, Message (*read)(const CmMad&)) {
  std::vector<uint8_t> data(bytes);
  std::iota(data.begin(), data.end(), uint8_t{1});
  message.private_data = data;
  MadBytes mad;
  write(mad, 1, message);
  const std::span<const uint8_t> field = read(parsed(mad)).private_data;
  EXPECT_TRUE(std::equal(field.begin(), field.end(), data.begin(), data.end())) << bytes;
  // The data extend to the message's last byte, and shorter data are padded.
  EXPECT_EQ(mad.back(), data.back());
  message.private_data = std::span(data).first(1);
  write(mad, 1, message);
  EXPECT_EQ(mad.back(), 0);
  EXPECT_EQ(read(parsed(mad)).private_data.size(), bytes);
}

TEST(Mads, CarryPrivateDataOfFullLength) {
  expect_private_data_survives(CmReq{}, kReqPrivateBytes, read_req);
  expect_private_data_survives(CmMra{}, kMraPrivateBytes, read_mra);
  expect_private_data_survives(CmRej{}, kRejPrivateBytes, read_rej);
  expect_private_data_survives(CmRep{}, kRepPrivateBytes, read_rep);
  expect_private_data_survives(CmRtu{}, kRtuPrivateBytes, read_rtu);
  expect_private_data_survives(CmDreq{}, kDreqPrivateBytes, read_dreq);
  expect_private_data_survives(CmDrep{}, kDrepPrivateBytes, read_drep);
  expect_private_data_survives(CmSidrReq{}, kSidrReqPrivateBytes, read_sidr_req);
  expect_private_data_survives(CmSidrRep{}, kSidrRepPrivateBytes, read_sidr_rep);
}

TEST(Mads, RejectionInformationHasItsLength) {
  const std::array<uint8_t, 8> info{1, 2, 3, 4, 5, 6, 7, 8};
  MadBytes bytes;
  write(bytes, 1, CmRej{.local_id = 1, .remote_id = 2, .reason = RejectReason::timeout, .info = info});
  EXPECT_EQ(read_rej(parsed(bytes)).info.size(), info.size());
  // A length beyond the field is limited to the field.
  bytes[kMadHeaderBytes + 9] = 0xff;
  EXPECT_EQ(read_rej(parsed(bytes)).info.size(), kRejInfoBytes);
  write(bytes, 1, CmSidrRep{.info = info});
  EXPECT_EQ(read_sidr_rep(parsed(bytes)).info.size(), info.size());
  bytes[kMadHeaderBytes + 5] = 0xff;
  EXPECT_EQ(read_sidr_rep(parsed(bytes)).info.size(), kSidrRepInfoBytes);
}

TEST(Mads, OthersAreTold) {
  MadBytes good;
  write(good, 1, CmRtu{.local_id = 1, .remote_id = 2});
  const auto error_with = [&good](size_t at, uint8_t value) {
    MadBytes bytes = good;
    bytes[at] = value;
    CmMad mad;
    return CmMad::parse(bytes, mad);
  };
  EXPECT_EQ(error_with(0, 2), MadError::base_version);
  EXPECT_EQ(error_with(1, 4), MadError::management_class);
  EXPECT_EQ(error_with(2, 1), MadError::class_version);
  EXPECT_EQ(error_with(3, 1), MadError::method);
  EXPECT_EQ(error_with(17, 0x0f), MadError::attribute);
  EXPECT_EQ(error_with(17, 0x19), MadError::attribute);
  EXPECT_EQ(error_with(16, 1), MadError::attribute);
  CmMad mad;
  for (const size_t length : {size_t{0}, size_t{24}, size_t{255}})
    EXPECT_EQ(CmMad::parse(std::span<const uint8_t>(good).first(length), mad), MadError::length);
  std::vector<uint8_t> longer(good.begin(), good.end());
  longer.push_back(0);
  EXPECT_EQ(CmMad::parse(longer, mad), MadError::length);
}

// A transport type other than RC, UC and XRC is not served.
TEST(Mads, UnknownTransportsAreOne) {
  MadBytes bytes;
  write(bytes, 1, CmReq{.transport = CmTransport::xrc});
  EXPECT_EQ(read_req(parsed(bytes)).transport, CmTransport::xrc);
  bytes[kMadHeaderBytes + 51] = static_cast<uint8_t>((bytes[kMadHeaderBytes + 51] & 0xf8) | 2);
  EXPECT_EQ(read_req(parsed(bytes)).transport, CmTransport::rd);
}

TEST(IpAddressingHeader, RefusesOtherVersions) {
  std::array<uint8_t, kIpAddressingBytes> bytes{};
  write_ip_addressing(bytes, {Gid::from_ipv4(1), Gid::from_ipv4(2), 3});
  EXPECT_TRUE(read_ip_addressing(bytes));
  bytes[0] = 0x10;
  EXPECT_FALSE(read_ip_addressing(bytes));
  bytes[0] = 0;
  for (const int version : {0x00, 0x50, 0x70, 0xf0}) {
    bytes[1] = static_cast<uint8_t>(version);
    EXPECT_FALSE(read_ip_addressing(bytes)) << version;
  }
  // An IPv4 address in IPv6 form does not identify the same peer.
  bytes[1] = 0x60;
  bytes[14] = bytes[15] = 0xff;
  EXPECT_FALSE(read_ip_addressing(bytes));
}

TEST(IpAddressingHeader, KnowsItsServices) {
  EXPECT_TRUE(is_ip_service(0x0000000001060000));
  EXPECT_TRUE(is_ip_service(0x000000000111ffff));
  EXPECT_FALSE(is_ip_service(0x00000000023f0000));
  EXPECT_FALSE(is_ip_service(0x1000000001060000));
}

}  // namespace
}  // namespace faultline::wire::test::mad_test
