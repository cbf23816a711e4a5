// SPDX-License-Identifier: BSD-3-Clause
// The part of a plan that only three or more hosts have: connections between random pairs, receives that
// several peers share, datagrams among all of a group, and a QP that moves from one peer to another. QPNs of
// different hosts are equal, so an address alone separates them.
#include <algorithm>

#include "tests/sim/flows/plan.hpp"

namespace faultline::sim {

using namespace transport;

namespace {

constexpr odp::ProtectionDomain kManyHostsDomain = 1;
constexpr uint32_t kManyHostsQkey = 0x11111111;
constexpr uint32_t kManyHostsXrcDomain = 7;
constexpr uint32_t kQueueDepth = 4096;
constexpr uint32_t kLongestUnreliableBytes = 9000;

}  // namespace

SimHost& Plan::pick_host(const SimHost* other) {
  const std::vector<SimHost*>& hosts = world_.hosts();
  if (!has_many_hosts()) return *hosts[other == nullptr ? 0 : 1];
  if (favourite_ != nullptr && other != favourite_ && random_.chance(500)) return *favourite_;
  for (;;)
    if (SimHost* const host = hosts[random_.below(hosts.size())]; host != other) return *host;
}

bool Plan::is_dead(const SimHost& host) const {
  return fabric_.theme == Theme::dead_peer && (!has_many_hosts() || host.number == fabric_.dead_host);
}

void Plan::add_traffic_of_many() {
  const std::vector<SimHost*>& hosts = world_.hosts();
  // An incast: most connections have one host in common.
  if (random_.chance(400)) favourite_ = hosts[random_.below(hosts.size())];
  const uint64_t connections = hosts.size() / 2 + random_.below(hosts.size());
  for (uint64_t i = 0; i < connections; ++i) add_connection(false);
  if (fabric_.theme == Theme::dead_peer) return;
  if (random_.chance(500)) add_pool_of_connections(QpType::rc);
  if (random_.chance(250)) add_pool_of_connections(QpType::xrc_recv);
  if (random_.chance(500)) add_group_of_datagrams();
  if (random_.chance(250)) add_pool_of_unreliable();
  if (random_.chance(150)) add_datagrams(QpType::ud);
  if (random_.chance(150)) add_datagrams(QpType::uc);
}

CompletionQueue* Plan::queue_of_pool(const SimHost& host) {
  if (CompletionQueue* const shared = shared_queue_of(host); shared != nullptr) return shared;
  return pool_queues.emplace_back(std::make_unique<CompletionQueue>(kQueueDepth)).get();
}

std::vector<SimHost*> Plan::pick_peers(const SimHost* host) {
  std::vector<SimHost*> peers;
  for (SimHost* other : world_.hosts())
    if (other != host) peers.push_back(other);
  for (size_t i = peers.size(); i > 1; --i) std::swap(peers[i - 1], peers[random_.below(i)]);
  peers.resize(std::min<size_t>(peers.size(), 2 + random_.below(5)));
  return peers;
}

/// Peers of one host share a receive queue there.
void Plan::add_pool_of_connections(QpType type) {
  const bool xrc = type == QpType::xrc_recv;
  SimHost& host = pick_host(nullptr);
  CompletionQueue* const queue = queue_of_pool(host);
  ReceivePool& pool = *pools.emplace_back(std::make_unique<ReceivePool>(next_flow_++));
  pool.srq = host.core().create_srq({.domain = kManyHostsDomain,
                                     .max_wr = random_.chance(500) ? 64 : random_.between32(1, 8),
                                     .max_sge = 4,
                                     .cq = xrc ? queue : nullptr,
                                     .xrc_domain = xrc ? kManyHostsXrcDomain : 0});
  EndpointScript script;
  script.signal_all = random_.chance(250);
  EndpointScript own = script;
  own.srq = pool.srq;
  if (xrc) {
    script.type = QpType::xrc_send;
    own.type = QpType::xrc_recv;
    own.xrc_domain = kManyHostsXrcDomain;
  }
  uint32_t room = 0;
  size_t count = 0;
  for (SimHost* peer : pick_peers(&host)) {
    Endpoint& far =
        *ends.emplace_back(std::make_unique<Endpoint>(world_, *peer, script, shared_queue_of(*peer)));
    Endpoint& near = *ends.emplace_back(std::make_unique<Endpoint>(world_, host, own, queue));
    pool.ends.push_back(&near);
    const ConnectionScript connection = draw_connection();
    if (!connect(world_, far, near, connection)) {
      error_ = "a connection to a shared receive queue was refused";
      return;
    }
    Flow& flow = *flows.emplace_back(std::make_unique<Flow>(next_flow_++, far, near));
    flow.signal_all = script.signal_all;
    flow.pooled = true;
    fill_flow(flow, bytes_of(connection.path_mtu), false);
    pool.flows.push_back(&flow);
    for (const PlannedSend& send : flow.sends)
      if (send.request.opcode == SendOpcode::send || send.request.opcode == SendOpcode::send_with_imm)
        room = std::max(room, static_cast<uint32_t>(send.payload.size()));
    count += flow.consuming();
    if (fabric_.theme == Theme::reborn && !xrc && &flow == pool.flows.front()) {
      fail_in_pool(flow);
      continue;
    }
    if (xrc || random_.chance(500)) continue;
    Flow& back = *flows.emplace_back(std::make_unique<Flow>(next_flow_++, near, far));
    back.signal_all = script.signal_all;
    fill_flow(back, bytes_of(connection.path_mtu), false);
  }
  fill_pool(pool, count, room, random_.chance(400));
}

/// The program moves one QP of a shared queue to the error state during traffic. It flushes the receive that
/// the QP has taken, and no other: the rest belong to the QPs that stay.
void Plan::fail_in_pool(Flow& flow) {
  flow.failure = PlannedFailure{{}, {CompletionStatus::retry_exceeded}, {}};
  const TimeNs fails = flow.sends[random_.below(flow.sends.size())].post_ns + 1 + random_.below(100'000);
  world_.at(fails, [this, &flow] {
    QpAttributes attributes;
    attributes.state = QpState::err;
    if (flow.to().modify(attributes, kAttrState) != 0) error_ = "a QP could not enter the error state";
  });
}

/// Each of a group of hosts has a UD QP, or two that share a receive queue, and sends to the others' QPs.
void Plan::add_group_of_datagrams() {
  const std::vector<SimHost*> group = pick_peers(nullptr);
  std::vector<ReceivePool*> group_pools;
  for (SimHost* host : group) {
    ReceivePool& pool = *pools.emplace_back(std::make_unique<ReceivePool>(next_flow_++));
    group_pools.push_back(&pool);
    EndpointScript script;
    script.type = QpType::ud;
    script.max_inline_bytes = 64;
    if (random_.chance(300))
      script.srq = pool.srq =
          host->core().create_srq({.domain = kManyHostsDomain, .max_wr = 64, .max_sge = 4});
    CompletionQueue* const queue = queue_of_pool(*host);
    const int qps = pool.srq != nullptr ? 2 : 1;
    for (int i = 0; i < qps; ++i) {
      Endpoint& end = *ends.emplace_back(std::make_unique<Endpoint>(world_, *host, script, queue));
      pool.ends.push_back(&end);
      if (!activate_datagram(end, kManyHostsQkey, random_.next32())) error_ = "a UD QP was refused";
    }
  }
  for (ReceivePool* to : group_pools) {
    size_t count = 0;
    for (ReceivePool* from : group_pools) {
      if (from == to || random_.chance(250)) continue;
      DatagramFlow& flow = *datagrams.emplace_back(
          std::make_unique<DatagramFlow>(next_flow_++, *from->ends[random_.below(from->ends.size())],
                                         *to->ends[random_.below(to->ends.size())]));
      fill_datagram_flow(flow, 1 + random_.below(12));
      to->datagrams.push_back(&flow);
      count += flow.sends.size();
    }
    fill_pool(*to, count + 8, wire::kGrhBytes + wire::kMaxPathMtuBytes, false);
  }
}

/// UC peers of one host share a receive queue there.
void Plan::add_pool_of_unreliable() {
  SimHost& host = pick_host(nullptr);
  CompletionQueue* const queue = queue_of_pool(host);
  ReceivePool& pool = *pools.emplace_back(std::make_unique<ReceivePool>(next_flow_++));
  pool.srq = host.core().create_srq({.domain = kManyHostsDomain, .max_wr = 64, .max_sge = 4});
  EndpointScript script;
  script.type = QpType::uc;
  EndpointScript own = script;
  own.srq = pool.srq;
  size_t count = 0;
  for (SimHost* peer : pick_peers(&host)) {
    Endpoint& far =
        *ends.emplace_back(std::make_unique<Endpoint>(world_, *peer, script, shared_queue_of(*peer)));
    Endpoint& near = *ends.emplace_back(std::make_unique<Endpoint>(world_, host, own, queue));
    pool.ends.push_back(&near);
    if (!connect(world_, far, near, draw_connection())) {
      error_ = "a UC QP was refused";
      return;
    }
    DatagramFlow& flow = *datagrams.emplace_back(std::make_unique<DatagramFlow>(next_flow_++, far, near));
    flow.grh_bytes = 0;
    fill_datagram_flow(flow, 1 + random_.below(12));
    pool.datagrams.push_back(&flow);
    count += flow.sends.size();
  }
  fill_pool(pool, count + 8, kLongestUnreliableBytes, false);
}

void Plan::fill_pool(ReceivePool& pool, size_t count, uint32_t room, bool late) {
  TimeNs at = late ? start_ns_ + random_.below(fabric_.spread_ns) : 0;
  for (size_t i = 0; i < count; ++i) {
    pool.receives.push_back({split(*pool.ends.front(), room, !pool.datagrams.empty()), at});
    world_.at(at, [] {});
    if (late) at += random_.below(fabric_.spread_ns / count + 1);
  }
}

/// One end leaves its peer during traffic and connects to a third host at once, with the same QPN and the
/// same PSNs. The old peer goes on with the old connection for a while: only its address separates its
/// packets from those of the new peer.
void Plan::move_to_another_peer(Endpoint& a, Endpoint& b, const EndpointScript& script,
                                const ConnectionScript& connection) {
  const bool a_moves = random_.chance(500);
  Endpoint& mover = a_moves ? a : b;
  Endpoint& left = a_moves ? b : a;
  SimHost* third = nullptr;
  while (third == nullptr || third == &left.host()) third = &pick_host(&mover.host());
  Endpoint& next =
      *ends.emplace_back(std::make_unique<Endpoint>(world_, *third, script, shared_queue_of(*third)));
  std::vector<Flow*> old;
  for (const auto& flow : flows)
    if (&flow->from() == &a || &flow->from() == &b) old.push_back(flow.get());
  // Mostly soon after a request, whose packets and answers are then under way.
  const std::vector<PlannedSend>& requests = old[random_.below(old.size())]->sends;
  const TimeNs moves = random_.chance(700)
                           ? requests[random_.below(requests.size())].post_ns + 1 + random_.below(100'000)
                           : world_.now() + 1 + random_.below(fabric_.spread_ns * 2);
  const TimeNs left_ends = moves + 1 + random_.below(fabric_.spread_ns * 2);
  for (Flow* flow : old) flow->failure = PlannedFailure{{}, {CompletionStatus::retry_exceeded}, {}};
  const uint32_t own_psn = a_moves ? connection.psn_a : connection.psn_b;
  const uint32_t peer_psn = a_moves ? connection.psn_b : connection.psn_a;
  const auto stop = [this, old](Endpoint& end) {
    for (Flow* flow : old) flow->abandon(end);
    if (!end.reset()) error_ = "a QP could not be reset";
    // What arrives from now on may not change a byte here. What this end has sent may still change the peer.
    for (Flow* flow : old) flow->freeze(end);
  };
  world_.at(moves, [this, stop, connection, own_psn, peer_psn, &mover, &next] {
    stop(mover);
    if (!connect_end(world_, mover, next, connection, own_psn, peer_psn) ||
        !connect_end(world_, next, mover, connection, peer_psn, own_psn))
      error_ = "a QP could not connect to another peer";
  });
  world_.at(left_ends, [stop, &left] { stop(left); });
  start_ns_ = moves + 1;
  add_flows(mover, next, connection, false, random_.chance(300), random_.chance(500), script.signal_all);
  start_ns_ = world_.now();
}

}  // namespace faultline::sim
