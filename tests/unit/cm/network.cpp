// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/cm/network.hpp"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace faultline::cm::test {

std::vector<uint8_t> pattern(size_t bytes, uint8_t first) {
  std::vector<uint8_t> data(bytes);
  std::iota(data.begin(), data.end(), first);
  return data;
}

wire::CmMad parsed(const wire::MadBytes& bytes) {
  wire::CmMad mad;
  EXPECT_EQ(wire::CmMad::parse(bytes, mad), wire::MadError::none);
  return mad;
}

Node::Node(Network& network, uint8_t host, ManagerConfig config)
    : network_(network), gid_(wire::Gid::from_ipv4(0xc6120000U | host)), mac_{{2, 0, 0, 0, 0, host}} {
  if (config.ca_guid == 0) config.ca_guid = 0x1000U + host;
  if (config.seed == 0) config.seed = 0x1234567800000000U * host + 0x1000U * host;
  manager_ = std::make_unique<Manager>(config, static_cast<MadSender&>(*this));
}

Path Node::path_to(const Node& peer) const {
  Path path;
  path.av.path.source_mac = mac_;
  path.av.path.destination_mac = peer.mac_;
  path.av.path.source_gid = gid_;
  path.av.path.destination_gid = peer.gid_;
  path.av.loopback = &peer == this;
  path.mtu = transport::PathMtu::mtu4096;
  return path;
}

std::optional<wire::IpAddressing> Node::addressing_to(const Node& peer) const {
  return wire::IpAddressing{gid_, peer.gid_, 4321};
}

ConnectParams Node::request_to(const Node& peer, uint64_t service_id, uint32_t qpn) const {
  ConnectParams params;
  params.service_id = service_id;
  params.path = path_to(peer);
  params.qpn = qpn;
  params.starting_psn = qpn * 7;
  if (wire::is_ip_service(service_id)) params.ip = addressing_to(peer);
  return params;
}

Event Node::next_event() {
  Event event;
  EXPECT_TRUE(manager_->take_event(event)) << "no event";
  return event;
}

std::vector<wire::CmAttribute> Node::sent_attributes() const {
  std::vector<wire::CmAttribute> attributes;
  for (const wire::MadBytes& mad : sent) attributes.push_back(parsed(mad).attribute());
  return attributes;
}

void Node::send_mad(const wire::MadBytes& mad, const transport::AddressVector& to, uint16_t pkey) {
  sent.push_back(mad);
  network_.carry(*this, mad, to, pkey);
}

Node& Network::add(ManagerConfig config) {
  nodes_.push_back(std::make_unique<Node>(*this, static_cast<uint8_t>(nodes_.size() + 1), config));
  return *nodes_.back();
}

void Network::carry(const Node& from, const wire::MadBytes& mad, const transport::AddressVector& to,
                    uint16_t pkey) {
  EXPECT_EQ(to.path.source_gid, from.gid());
  const auto peer = std::find_if(nodes_.begin(), nodes_.end(),
                                 [&](const auto& node) { return node->gid() == to.path.destination_gid; });
  if (peer == nodes_.end()) return;
  EXPECT_EQ(to.path.destination_mac, from.path_to(**peer).av.path.destination_mac);
  if (loses != nullptr && loses(parsed(mad))) return;
  if (chance(1000) < script.loss_permille) return;
  MadSource source;
  source.reply = (*peer)->path_to(from).av;
  source.pkey = pkey;
  const int copies = chance(1000) < script.duplicate_permille ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    const uint64_t jitter = script.jitter_ns == 0 ? 0 : random_() % script.jitter_ns;
    under_way_.emplace(now_ + script.delay_ns + jitter, Datagram{peer->get(), mad, source});
  }
}

void Network::run_until(TimeNs until) {
  for (;;) {
    TimeNs next = under_way_.empty() ? kNever : under_way_.begin()->first;
    for (const auto& node : nodes_) next = std::min(next, node->manager().next_deadline());
    if (next > until) break;
    now_ = std::max(now_, next);
    while (!under_way_.empty() && under_way_.begin()->first <= now_) {
      const Datagram datagram = under_way_.begin()->second;
      under_way_.erase(under_way_.begin());
      datagram.to->receive(datagram.mad, datagram.source, now_);
    }
    for (const auto& node : nodes_) node->manager().poll(now_);
  }
  now_ = until;
}

std::function<bool(const wire::CmMad&)> losing(wire::CmAttribute attribute, int count) {
  return [attribute, count](const wire::CmMad& mad) mutable {
    return mad.attribute() == attribute && count-- > 0;
  };
}

}  // namespace faultline::cm::test
