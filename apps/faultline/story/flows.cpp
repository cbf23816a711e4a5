// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/story/flows.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "stack/wire/mad/mad_cm.hpp"

namespace faultline::story {
namespace {

/// An answer's PSN is at most this far from the last request: a window, or the packets of a READ.
constexpr int32_t kNearPackets = 1 << 16;
constexpr uint32_t kVotesPerFlow = 512;
constexpr uint64_t kCertain = uint64_t{1} << 32;

bool is_connected(wire::Service service) {
  return service == wire::Service::rc || service == wire::Service::xrc;
}

}  // namespace

FlowIndex Flows::find(const wire::Packet& packet) {
  const bool datagram = packet.info->service == wire::Service::ud;
  const wire::Gid source = packet.source_gid();
  const wire::Gid destination = packet.destination_gid();
  const uint32_t source_qpn = datagram ? packet.deth().source_qpn : 0;
  const Key key{source.bytes, destination.bytes, packet.bth.destination_qpn, source_qpn};
  if (!flows_.empty() && key == last_key_) return last_flow_;
  const auto [place, is_new] = by_key_.try_emplace(key, static_cast<FlowIndex>(flows_.size()));
  if (is_new) {
    flows_.push_back({.source = source,
                      .destination = destination,
                      .qpn = packet.bth.destination_qpn,
                      .source_qpn = source_qpn,
                      .service = packet.info->service});
    by_hosts_[{source.bytes, destination.bytes}].push_back(place->second);
  }
  last_key_ = key;
  last_flow_ = place->second;
  return place->second;
}

FlowIndex Flows::add(const wire::Packet& packet) {
  const FlowIndex index = find(packet);
  Flow& flow = flows_[index];
  if (packet.info->service == wire::Service::ud) {
    if (flow.qpn == wire::kManagementQpn) read_management(packet);
  } else if (packet.info->request) {
    flow.service = packet.info->service;
    flow.has_requests = true;
    flow.last_request = packet.bth.psn;
  } else if (packet.info->service != wire::Service::cnp && flow.votes_cast < kVotesPerFlow) {
    flow.service = packet.info->service;
    vote(index, packet);
  }
  return index;
}

void Flows::vote(FlowIndex answered, const wire::Packet& answer) {
  const auto back = by_hosts_.find({flows_[answered].destination.bytes, flows_[answered].source.bytes});
  if (back == by_hosts_.end()) return;
  std::optional<FlowIndex> nearest;
  int32_t nearest_packets = kNearPackets;
  for (const FlowIndex candidate : back->second) {
    const Flow& flow = flows_[candidate];
    if (!flow.has_requests || !is_connected(flow.service)) continue;
    const int32_t distance = std::abs(answer.bth.psn.distance_from(flow.last_request));
    if (distance >= nearest_packets) continue;
    nearest = candidate;
    nearest_packets = distance;
  }
  if (!nearest) return;
  ++flows_[answered].votes_cast;
  ++votes_[std::minmax(answered, *nearest)];
}

void Flows::read_management(const wire::Packet& packet) {
  wire::CmMad mad;
  if (wire::CmMad::parse(packet.payload(), mad) != wire::MadError::none) return;
  const wire::Gid source = packet.source_gid();
  const wire::Gid destination = packet.destination_gid();
  if (mad.attribute() == wire::CmAttribute::req) {
    const wire::CmReq request = wire::read_req(mad);
    requests_[{{source.bytes, destination.bytes}, request.local_id}] = {source, destination, request.qpn};
  } else if (mad.attribute() == wire::CmAttribute::rep) {
    const wire::CmRep reply = wire::read_rep(mad);
    const auto asked = requests_.find({{destination.bytes, source.bytes}, reply.remote_id});
    if (asked == requests_.end()) return;
    agreed_.push_back({asked->second, reply.qpn});
    requests_.erase(asked);
  }
}

void Flows::vote_by_management() {
  for (const Agreed& one : agreed_) {
    const auto there =
        by_key_.find({one.request.source.bytes, one.request.destination.bytes, one.answer_qpn, 0});
    const auto back =
        by_key_.find({one.request.destination.bytes, one.request.source.bytes, one.request.qpn, 0});
    if (there != by_key_.end() && back != by_key_.end())
      votes_[std::minmax(there->second, back->second)] += kCertain;
  }
}

std::vector<Flows::Side> Flows::pair(std::vector<Connection>& connections) {
  vote_by_management();
  std::vector<std::optional<FlowIndex>> partner(flows_.size());
  std::vector<std::pair<uint64_t, Pair>> ranking;
  for (const auto& [pair, count] : votes_) ranking.emplace_back(count, pair);
  std::ranges::stable_sort(ranking, [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [count, pair] : ranking) {
    if (pair.first == pair.second || partner[pair.first] || partner[pair.second]) continue;
    partner[pair.first] = pair.second;
    partner[pair.second] = pair.first;
  }
  for (FlowIndex i = 0; i < flows_.size(); ++i) {
    const Flow& flow = flows_[i];
    if (flow.service != wire::Service::ud || partner[i]) continue;
    const auto back = by_key_.find({flow.destination.bytes, flow.source.bytes, flow.source_qpn, flow.qpn});
    if (back == by_key_.end() || back->second == i) continue;
    partner[i] = back->second;
    partner[back->second] = i;
  }

  std::vector<Side> sides(flows_.size());
  std::vector<bool> placed(flows_.size());
  for (FlowIndex i = 0; i < flows_.size(); ++i) {
    if (placed[i]) continue;
    // All further flows are one connection: an event has 16 bits for it.
    if (connections.size() < kMostConnections) {
      Connection connection;
      const Flow& flow = flows_[i];
      connection.ends[0] = {flow.source, partner[i] ? flows_[*partner[i]].qpn : flow.source_qpn};
      connection.ends[1] = {flow.destination, flow.qpn};
      connection.service = flow.service;
      connections.push_back(connection);
    }
    const auto index = static_cast<uint16_t>(connections.size() - 1);
    sides[i] = {index, false};
    placed[i] = true;
    if (!partner[i]) continue;
    sides[*partner[i]] = {index, true};
    placed[*partner[i]] = true;
  }
  return sides;
}

}  // namespace faultline::story
