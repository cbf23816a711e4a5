// SPDX-License-Identifier: BSD-3-Clause
#include "tests/interop/hostile/attacks.hpp"

#include <algorithm>

#include "stack/wire/mad/mad.hpp"
#include "stack/wire/packet/checksum.hpp"
#include "stack/wire/packet/icrc.hpp"
#include "stack/wire/packet/layout.hpp"

namespace faultline::hostile {
namespace {

constexpr uint32_t kStrangersIpv4 = 0xc6120040;  // 198.18.0.64 and behind it
constexpr uint32_t kStrangers = 128;

void repair_checksum(uint8_t* ip) {
  wire::store_be16(ip + wire::kIpv4ChecksumAt, 0);
  wire::store_be16(ip + wire::kIpv4ChecksumAt,
                   static_cast<uint16_t>(~wire::fold_sum(wire::ones_sum({ip, wire::kIpv4Bytes}))));
}

}  // namespace

Attacks::Attacks(Facts facts, uint64_t seed) : facts_(std::move(facts)), random_(seed) {
  for (const auto& path : wire::test::golden_captures())
    for (wire::test::Frame& frame : wire::test::read_capture(path)) golden_.push_back(std::move(frame));
}

const std::vector<Attacks::Kind>& Attacks::kinds() {
  static const std::vector<Kind> kKinds{
      {"runt", &Attacks::runt, 20},
      {"oversize", &Attacks::oversize, 5},
      {"noise", &Attacks::noise, 20},
      {"not-for-us", &Attacks::not_for_us, 20},
      {"tagged", &Attacks::tagged, 10},
      {"arp-request", &Attacks::arp_request, 40},
      {"arp-claim", &Attacks::arp_claim, 20},
      {"neighbour-solicitation", &Attacks::neighbour_solicitation, 30},
      {"neighbour-claim", &Attacks::neighbour_claim, 20},
      {"broken-neighbour-message", &Attacks::broken_neighbour_message, 10},
      {"echo", &Attacks::echo, 40},
      {"other-protocol", &Attacks::other_protocol, 20},
      {"fragment", &Attacks::fragment, 20},
      {"any-opcode-any-length", &Attacks::any_opcode_any_length, 150},
      {"forged-pad", &Attacks::forged_pad, 60},
      {"atomic-write-length", &Attacks::atomic_write_length, 20},
      {"wrong-icrc", &Attacks::wrong_icrc, 40},
      {"wrong-udp-checksum", &Attacks::wrong_udp_checksum, 20},
      {"wrong-ip-header", &Attacks::wrong_ip_header, 20},
      {"golden-replayed", &Attacks::golden_replayed, 60},
      {"golden-mutated", &Attacks::golden_mutated, 120},
      {"foreign-to-live-qp", &Attacks::foreign_to_live_qp, 100},
      {"peers-to-no-qp", &Attacks::peers_to_no_qp, 30},
      {"peers-wrong-service", &Attacks::peers_wrong_service, 20},
      {"peers-wrong-pkey", &Attacks::peers_wrong_pkey, 20},
      {"wrong-qkey", &Attacks::wrong_qkey, 20},
      {"peers-far-request", &Attacks::peers_far_request, 40, true},
      {"peers-far-answer", &Attacks::peers_far_answer, 40, true},
      {"peers-notification", &Attacks::peers_notification, 1},
      {"peers-with-all-known", &Attacks::peers_with_all_known, 1, true},
      {"cm-request", &Attacks::cm_request, 40},
      {"cm-answer", &Attacks::cm_answer, 40},
      {"cm-service-request", &Attacks::cm_service_request, 10},
      {"cm-malformed", &Attacks::cm_malformed, 20},
  };
  return kKinds;
}

Bytes Attacks::make(const Kind& kind, std::string& predicted) {
  // What chance has made good enough to reach a QP is not of its kind.
  for (;;) {
    Bytes frame = (this->*kind.make)();
    predicted = predict(facts_, frame);
    if (kind.reaches || predicted != kReached) return frame;
  }
}

Bytes Attacks::random_bytes(size_t count) {
  Bytes bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_());
  return bytes;
}

wire::Gid Attacks::stranger(bool ipv6) {
  const auto number = static_cast<uint8_t>(random(kStrangers));
  if (!ipv6) return wire::Gid::from_ipv4(kStrangersIpv4 + number);
  wire::Gid gid = facts_.target.ipv6;
  gid.bytes[14] = 0xbd;
  gid.bytes[15] = number;
  return gid;
}

wire::PathHeader Attacks::foreign_path() {
  const bool ipv6 = chance(30);
  wire::PathHeader path;
  path.source_mac = facts_.own.mac;
  path.destination_mac = facts_.target.mac;
  path.source_gid = stranger(ipv6);
  path.destination_gid = ipv6 ? facts_.target.ipv6 : facts_.target.ipv4;
  path.udp_source_port = static_cast<uint16_t>(random_());
  path.traffic_class = static_cast<uint8_t>(random_());
  return path;
}

wire::PathHeader Attacks::peers_path() const {
  wire::PathHeader path;
  path.source_mac = facts_.own.mac;
  path.destination_mac = facts_.target.mac;
  path.source_gid = facts_.peer.ipv4;
  path.destination_gid = facts_.target.ipv4;
  return path;
}

const TargetQp& Attacks::any_qp() {
  return facts_.qps[random(facts_.qps.size())];
}

wire::Opcode Attacks::any_opcode(wire::Service service, bool request) {
  for (;;) {
    const auto opcode = static_cast<uint8_t>(random(256));
    const wire::OpcodeInfo& info = wire::opcode_info(opcode);
    const bool extra = service == wire::Service::rc && info.service == wire::Service::manufacturer;
    if (info.known && info.request == request && (info.service == service || extra))
      return static_cast<wire::Opcode>(opcode);
  }
}

wire::PacketFields Attacks::fields_for(const TargetQp& qp, wire::Opcode opcode) {
  wire::PacketFields fields;
  fields.bth.opcode = opcode;
  fields.bth.destination_qpn = qp.qpn;
  fields.bth.ack_request = chance(50);
  fields.bth.selective_ack = chance(50);
  fields.bth.page_fault = chance(10);
  fields.bth.page_ready = chance(10);
  fields.bth.psn = wire::Psn(static_cast<uint32_t>(qp.request_psn + random(1U << 16)));
  fields.reth = {qp.va, qp.rkey, static_cast<uint32_t>(random(8192))};
  fields.atomic_eth = {qp.va, qp.rkey, random_(), random_()};
  constexpr std::array<uint8_t, 5> kSyndromes{wire::kAethAck | wire::kAethCreditsInvalid, wire::kAethAck,
                                              wire::kAethRnrNak | 31, wire::kAethNak, wire::kAethNak | 2};
  fields.aeth = {kSyndromes[random(kSyndromes.size())], static_cast<uint32_t>(random(1U << 24))};
  fields.deth = {static_cast<uint32_t>(random_()), static_cast<uint32_t>(random(1U << 24))};
  fields.immediate = static_cast<uint32_t>(random_());
  fields.invalidate_rkey = qp.rkey;
  fields.feth = {1, 0};
  for (uint64_t& word : fields.sack_eth.map) word = random_();
  fields.xrc_srq_number = static_cast<uint32_t>(random(1U << 24));
  return fields;
}

Bytes Attacks::packet(const wire::PathHeader& path, wire::PacketFields fields, size_t most_bytes) {
  const wire::OpcodeInfo& info = wire::opcode_info(fields.bth.opcode);
  uint32_t payload_bytes = info.payload_min_bytes;
  if (info.payload == wire::PayloadRule::one_to_mtu || info.payload == wire::PayloadRule::zero_to_mtu)
    payload_bytes += static_cast<uint32_t>(random(most_bytes));
  const wire::FrameTemplate header(path);
  Bytes frame(header.frame_bytes(fields.bth.opcode, payload_bytes));
  uint8_t* payload = header.write_headers(frame, fields, payload_bytes);
  for (uint32_t i = 0; i < payload_bytes; ++i) payload[i] = static_cast<uint8_t>(random_());
  frame.resize(header.seal(frame, fields.bth.opcode, payload_bytes));
  return frame;
}

Bytes Attacks::datagram(const wire::PathHeader& path, std::span<const uint8_t> mad, uint32_t qkey,
                        uint32_t source_qpn) {
  wire::PacketFields fields;
  fields.bth.opcode = wire::Opcode::ud_send_only;
  fields.bth.destination_qpn = wire::kManagementQpn;
  fields.bth.psn = wire::Psn(static_cast<uint32_t>(random(1U << 24)));
  fields.deth = {qkey, source_qpn};
  const wire::FrameTemplate header(path);
  const auto bytes = static_cast<uint32_t>(mad.size());
  Bytes frame(header.frame_bytes(fields.bth.opcode, bytes));
  std::copy(mad.begin(), mad.end(), header.write_headers(frame, fields, bytes));
  frame.resize(header.seal(frame, fields.bth.opcode, bytes));
  return frame;
}

void repair(Bytes& frame) {
  constexpr size_t kIpAt = wire::kEthernetBytes;
  if (frame.size() < kIpAt + wire::kIpv6Bytes) return;
  const uint16_t ether_type = wire::load_be16(&frame[kIpAt - 2]);
  const bool ipv6 = ether_type == wire::kEtherTypeIpv6;
  if (!ipv6 && ether_type != wire::kEtherTypeIpv4) return;
  uint8_t* ip = &frame[kIpAt];
  const size_t ip_bytes = frame.size() - kIpAt;
  const size_t header_bytes = ipv6 ? wire::kIpv6Bytes : wire::kIpv4Bytes;
  if (ipv6) {
    wire::store_be16(ip + wire::kIpv6PayloadLengthAt, static_cast<uint16_t>(ip_bytes - header_bytes));
  } else {
    wire::store_be16(ip + wire::kIpv4TotalLengthAt, static_cast<uint16_t>(ip_bytes));
    repair_checksum(ip);
  }
  if (ip_bytes < header_bytes + wire::kUdpBytes) return;
  wire::store_be16(ip + header_bytes + wire::kUdpLengthAt, static_cast<uint16_t>(ip_bytes - header_bytes));
  if (ip_bytes < header_bytes + wire::kUdpBytes + wire::kBthBytes + wire::kIcrcBytes) return;
  wire::store_be16(ip + header_bytes + wire::kUdpChecksumAt, 0);
  const size_t covered_bytes = ip_bytes - wire::kIcrcBytes;
  wire::store_le32(ip + covered_bytes, wire::icrc_by_library({ip, covered_bytes}, ipv6));
}

}  // namespace faultline::hostile
