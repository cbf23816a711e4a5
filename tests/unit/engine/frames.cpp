// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/engine/frames.hpp"

#include <algorithm>

#include "stack/wire/link/link.hpp"
#include "stack/wire/packet/checksum.hpp"
#include "stack/wire/packet/frame.hpp"

namespace faultline::glue::test {
namespace {

/// Stores the checksum of a range of the frame at `at`.
void store_checksum(Frame& frame, size_t at, size_t from, size_t bytes) {
  const auto sum =
      static_cast<uint16_t>(~wire::fold_sum(wire::ones_sum(std::span(frame).subspan(from, bytes))));
  frame[at] = static_cast<uint8_t>(sum >> 8);
  frame[at + 1] = static_cast<uint8_t>(sum);
}

}  // namespace

Frame arp_request(uint32_t target_ip, const wire::VlanTag& vlan) {
  Frame frame(wire::kMaxLinkFrameBytes);
  const wire::ArpPacket packet{wire::ArpOperation::request, kPeerMac, kPeerIp, {}, target_ip};
  frame.resize(wire::build_arp(frame, packet, wire::kBroadcastMac, vlan));
  return frame;
}

Frame solicitation(const wire::Gid& target) {
  Frame frame(wire::kMaxLinkFrameBytes);
  wire::NeighbourMessage message;
  message.source = kPeerIpv6;
  message.destination = wire::solicited_node_group(target);
  message.target = target;
  message.has_link_address = true;
  message.link_address = kPeerMac;
  frame.resize(wire::build_neighbour_message(frame, message,
                                             {kPeerMac, wire::multicast_mac(message.destination), {}}));
  return frame;
}

Frame echo_request(const Station& to) {
  constexpr size_t kIpAt = 14, kIpBytes = 20, kIcmpAt = kIpAt + kIpBytes, kIcmpBytes = 12;
  Frame frame(to.mac().bytes.begin(), to.mac().bytes.end());
  frame.insert(frame.end(), kPeerMac.bytes.begin(), kPeerMac.bytes.end());
  const Frame rest{0x08, 0,  0x45, 0,  0,   kIpBytes + kIcmpBytes,
                   0,    1,  0,    0,  64,  1,
                   0,    0,  198,  18, 0,   9,
                   0,    0,  0,    0,  8,   0,
                   0,    0,  1,    2,  'd', 'a',
                   't',  'a'};
  frame.insert(frame.end(), rest.begin(), rest.end());
  frame.insert(frame.end(), kIcmpAt + kIcmpBytes - frame.size(), 0);
  std::copy_n(to.gid().bytes.begin() + 12, 4, frame.begin() + kIpAt + 16);
  store_checksum(frame, kIpAt + 10, kIpAt, kIpBytes);
  store_checksum(frame, kIcmpAt + 2, kIcmpAt, kIcmpBytes);
  return frame;
}

Frame roce_frame(const Station& to, uint32_t qpn, const std::function<void(wire::PathHeader&)>& change) {
  wire::PathHeader path;
  path.source_mac = kPeerMac;
  path.destination_mac = to.mac();
  path.source_gid = wire::Gid::from_ipv4(kPeerIp);
  path.destination_gid = to.gid();
  if (change) change(path);
  const wire::FrameTemplate header(path);
  wire::PacketFields fields;
  fields.bth.opcode = wire::Opcode::rc_send_only;
  fields.bth.destination_qpn = qpn;
  Frame frame(header.frame_bytes(fields.bth.opcode, 0));
  EXPECT_NE(header.write_headers(frame, fields, 0), nullptr);
  header.seal(frame, fields.bth.opcode, 0);
  return frame;
}

wire::Packet packet_of(const Frame& frame) {
  wire::Packet packet;
  EXPECT_EQ(wire::parse(frame, packet), wire::ParseError::none);
  return packet;
}

wire::Opcode opcode_of(const Frame& frame) {
  return packet_of(frame).bth.opcode;
}

std::vector<wire::Opcode> opcodes_of(const std::vector<Frame>& frames) {
  std::vector<wire::Opcode> opcodes;
  std::ranges::transform(frames, std::back_inserter(opcodes), opcode_of);
  return opcodes;
}

}  // namespace faultline::glue::test
