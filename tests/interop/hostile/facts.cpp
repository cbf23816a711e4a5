// SPDX-License-Identifier: BSD-3-Clause
#include "tests/interop/hostile/facts.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include <arpa/inet.h>
#include <nlohmann/json.hpp>

#include "stack/transport/shared/counters.hpp"
#include "stack/wire/link/address_filter.hpp"
#include "stack/wire/mad/mad.hpp"

namespace faultline::hostile {
namespace {

using transport::DropReason;
using wire::FrameKind;

wire::Gid parse_gid(const std::string& text) {
  wire::Gid gid;
  in_addr ipv4{};
  if (inet_pton(AF_INET, text.c_str(), &ipv4) == 1) return wire::Gid::from_ipv4(ntohl(ipv4.s_addr));
  if (inet_pton(AF_INET6, text.c_str(), gid.bytes.data()) != 1)
    throw std::runtime_error("not an address: " + text);
  return gid;
}

Station read_station(const nlohmann::json& facts) {
  return {.mac = parse_mac(facts.at("mac")),
          .ipv4 = parse_gid(facts.at("ipv4")),
          .ipv6 = parse_gid(facts.at("ipv6")),
          .guid = facts.value("guid", uint64_t{0})};
}

std::string name(DropReason reason) {
  return "drop." + std::string(transport::name_of(reason));
}

bool own_pkey(const wire::Packet& packet) {
  return (packet.bth.pkey & wire::kPkeyBaseMask) == (wire::kDefaultPkey & wire::kPkeyBaseMask);
}

/// QP1's own ladder.
std::string predict_management(const wire::Packet& packet) {
  if (packet.info->service != wire::Service::ud) return name(DropReason::wrong_service);
  if (!own_pkey(packet)) return name(DropReason::pkey);
  if (packet.deth().qkey != wire::kManagementQkey) return name(DropReason::qkey);
  if (packet.payload_bytes != wire::kMadBytes) return name(DropReason::payload_rule);
  if (packet.source_gid().is_multicast()) return name(DropReason::source_address);
  return "transport.management_received";
}

std::string predict_packet(const Facts& facts, const wire::Packet& packet) {
  if (packet.bth.destination_qpn == wire::kMulticastQpn) return name(DropReason::multicast_group);
  const TargetQp* qp = facts.find(packet.bth.destination_qpn);
  if (qp == nullptr)
    return packet.bth.destination_qpn == wire::kManagementQpn && facts.management
               ? predict_management(packet)
               : name(DropReason::unknown_qpn);
  if (qp->name == "victim") return kReached;  // it dies of the first packet that is good enough
  const bool from_peer = facts.peer.ipv4 == packet.source_gid();
  const bool ours = packet.info->service == wire::Service::manufacturer && qp->service == wire::Service::rc;
  if (packet.info->service == wire::Service::cnp) {
    if (qp->service == wire::Service::ud || !packet.bth.becn) return name(DropReason::cnp);
    if (!own_pkey(packet)) return name(DropReason::pkey);
    return from_peer ? "transport.cnps_received" : name(DropReason::source_address);
  }
  if (packet.info->service != qp->service && !ours) return name(DropReason::wrong_service);
  if (!own_pkey(packet)) return name(DropReason::pkey);
  if (qp->service == wire::Service::ud)
    return packet.deth().qkey == facts.qkey ? kReached : name(DropReason::qkey);
  return from_peer ? kReached : name(DropReason::source_address);
}

}  // namespace

wire::MacAddress parse_mac(const std::string& text) {
  wire::MacAddress mac;
  std::array<unsigned, 6> bytes{};
  if (std::sscanf(text.c_str(), "%x:%x:%x:%x:%x:%x", &bytes[0], &bytes[1], &bytes[2], &bytes[3], &bytes[4],
                  &bytes[5]) != 6)
    throw std::runtime_error("not a MAC address: " + text);
  std::copy(bytes.begin(), bytes.end(), mac.bytes.begin());
  return mac;
}

const TargetQp* Facts::find(uint32_t qpn) const {
  const auto at = std::find_if(qps.begin(), qps.end(), [qpn](const TargetQp& qp) { return qp.qpn == qpn; });
  return at == qps.end() ? nullptr : &*at;
}

const TargetQp& Facts::named(const std::string& wanted) const {
  for (const TargetQp& qp : qps)
    if (qp.name == wanted) return qp;
  throw std::runtime_error("no QP of this name: " + wanted);
}

Facts read_facts(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file);
  Facts facts;
  facts.target = read_station(json.at("target"));
  facts.peer = read_station(json.at("peer"));
  facts.qkey = json.at("qkey");
  facts.management = json.value("management", true);
  for (const auto& service : json.at("services")) facts.services.push_back(service);
  for (const auto& qp : json.at("qps"))
    facts.qps.push_back({.name = qp.at("name"),
                         .service = qp.at("service") == "rc"   ? wire::Service::rc
                                    : qp.at("service") == "uc" ? wire::Service::uc
                                                               : wire::Service::ud,
                         .qpn = qp.at("qpn"),
                         .peer_qpn = qp.at("peer_qpn"),
                         .request_psn = qp.at("request_psn"),
                         .answer_psn = qp.at("answer_psn"),
                         .rkey = qp.value("rkey", 0U),
                         .va = qp.value("va", uint64_t{0}),
                         .bytes = qp.value("bytes", 0U)});
  return facts;
}

std::string predict(const Facts& facts, std::span<const uint8_t> frame) {
  const std::array own{facts.target.ipv4, facts.target.ipv6};
  const wire::AddressFilter filter(facts.target.mac, {}, own);
  const FrameKind kind = wire::classify(frame);
  switch (filter.admit(frame, kind)) {
    case wire::Admission::wrong_vlan:
      return "port.wrong_vlan";
    case wire::Admission::wrong_address:
      return "port.wrong_address";
    case wire::Admission::accepted:
      break;
  }
  if (kind == FrameKind::arp) return "port.arp_in";
  if (kind == FrameKind::roce) {
    wire::Packet packet;
    wire::ParseError error = wire::parse(frame, packet);
    if (error == wire::ParseError::none && !wire::icrc_matches(packet)) error = wire::ParseError::icrc;
    if (error != wire::ParseError::none) return "parse." + std::string(wire::name_of(error));
    return predict_packet(facts, packet);
  }
  wire::NeighbourMessage message;
  if (kind == FrameKind::ipv6_other && wire::parse_neighbour_message(frame, message)) return "port.nd_in";
  std::vector<uint8_t> answered(frame.begin(), frame.end());
  if (kind != FrameKind::other && wire::answer_echo(answered, facts.target.mac, own) != 0)
    return "port.icmp_in";
  return "port.other_dropped";
}

}  // namespace faultline::hostile
