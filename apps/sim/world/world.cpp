// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/world/world.hpp"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "apps/sim/host/address.hpp"
#include "stack/transport/qp/queue_pair.hpp"

namespace faultline::fabric {
namespace {

/// Receives stay posted for two rounds of the sender's requests, so that none waits for a receive.
constexpr uint32_t kReceiveRounds = 2;
constexpr uint32_t kMostReads = 16;

}  // namespace

World::World(const Description& description, const Recorder& recorder, std::pmr::memory_resource* memory)
    : description_(description),
      random_(description.seed),
      fabric_(description, events_, *this, random_.fork(), memory),
      memory_(memory),
      pattern_(make_pattern(description.traffic, description.topology.hosts, random_.fork())) {
  make_hosts(recorder);
  connections_.resize(routes().size());
  chaos::Random ports = random_.fork();
  for (uint32_t i = 0; i < connections_.size(); ++i) connect(i, ports);
  plan_traffic();
  if (description.sample_ns != 0) events_.add(ps_of(description.sample_ns), EventKind::sample, 0);
}

void World::make_hosts(const Recorder& recorder) {
  const TrafficParameters& traffic = description_.traffic;
  std::vector<uint32_t> qps(description_.topology.hosts);
  for (const Route& route : routes())
    for (const uint32_t host : {route.source, route.destination}) ++qps[host];
  const uint32_t most = *std::ranges::max_element(qps);
  if (most > transport::kQpnBlock)
    throw DescriptionError(
        fmt::format("faultline-sim: traffic: a host would have {} queue pairs of at most {}; use fewer hosts "
                    "or connections",
                    most, transport::kQpnBlock));
  Program& program = *this;
  const uint32_t completions = traffic.outstanding * (1 + kReceiveRounds);
  for (uint32_t host = 0; host < qps.size(); ++host) {
    const HostSize size{.qps = qps[host],
                        .completions = qps[host] * completions,
                        .recorder = host == recorder.host ? recorder.ring : nullptr,
                        .memory = memory_};
    hosts_.push_back(std::make_unique<Host>(host, description_, size, fabric_, buffers_, events_, program));
  }
}

void World::connect(uint32_t index, chaos::Random& random) {
  const Route& route = routes()[index];
  const TrafficParameters& traffic = description_.traffic;
  Host& requester = *hosts_[requester_of(route)];
  Host& responder = *hosts_[responder_of(route)];
  const uint32_t receives = notices() ? kReceiveRounds * traffic.outstanding : 1;
  Connection& connection = connections_[index];
  connection.requester = requester.create_end({.send_requests = traffic.outstanding, .receive_requests = 1});
  connection.responder = responder.create_end({.send_requests = 1, .receive_requests = receives});
  const auto path = [&](bool forward) {
    const uint32_t from = forward ? requester_of(route) : responder_of(route);
    const uint32_t to = forward ? responder_of(route) : requester_of(route);
    return path_between(from, to, random.next());
  };
  const auto reads = static_cast<uint8_t>(std::min(traffic.outstanding, kMostReads));
  int error = requester.connect(connection.requester, path(true), transport::qpn_of(connection.responder),
                                description_.host, reads);
  if (error == 0)
    error = responder.connect(connection.responder, path(false), transport::qpn_of(connection.requester),
                              description_.host, reads);
  if (error != 0) throw std::logic_error("faultline-sim: a transition of a queue pair was refused");
  if (!notices()) return;
  for (uint32_t i = 0; i < receives; ++i) responder.post_receive(connection.responder, index);
}

void World::run() {
  const TimePs end_ps = ps_of(description_.duration_ns);
  while (events_.next_ps() <= end_ps && (open_flows_ != 0 || pattern_->next_ns() != kNever)) {
    const Event event = events_.take();
    now_ps_ = event.time_ps;
    look_ahead();
    handle(event);
  }
  const bool has_ended = open_flows_ == 0 && pattern_->next_ns() == kNever;
  if (!has_ended) now_ps_ = end_ps;
  fabric_.finish(now_ps_);
}

void World::look_ahead() const {
  bool is_next = true;
  for (const Event& event : events_.soon()) {
    if (event.kind == EventKind::sent || event.kind == EventKind::arrived) fabric_.prefetch(event, is_next);
    is_next = false;
  }
}

void World::handle(const Event& event) {
  switch (event.kind) {
    case EventKind::turn:
      return hosts_[event.target]->on_turn(event.time_ps);
    case EventKind::traffic:
      pattern_->on_time(now_ns(), *this);
      return plan_traffic();
    case EventKind::sample:
      return sample();
    default:
      return fabric_.handle(event);
  }
}

void World::plan_traffic() {
  const TimeNs next = pattern_->next_ns();
  if (next != kNever) events_.add(ps_of(next), EventKind::traffic, 0);
}

/// Notes the queues of switches that are not empty.
void World::sample() {
  const std::span<const Channel> channels = fabric_.channels();
  for (uint32_t i = 0; i < channels.size(); ++i)
    if (channels[i].queued_bytes != 0 && !description_.topology.is_host(channels[i].from))
      samples_.push_back({.time_ns = now_ns(), .channel = i, .bytes = channels[i].queued_bytes});
  events_.add(now_ps_ + ps_of(description_.sample_ns), EventKind::sample, 0);
}

void World::on_frame(uint32_t host, Frame& frame, TimePs now_ps) {
  hosts_[host]->on_frame(frame, now_ps);
}

void World::on_frame_sent(uint32_t host, TimePs now_ps) {
  hosts_[host]->on_frame_sent(now_ps);
}

void World::start(const FlowKey& key, uint32_t bytes) {
  const auto number = static_cast<uint32_t>(flows_.size());
  if (number == kNoFlow) throw DescriptionError("faultline-sim: more than 4 thousand million flows");
  Flow flow{.start_ns = now_ns(), .connection = key.connection, .tag = key.tag, .bytes = bytes};
  Connection& connection = connections_[key.connection];
  if (connection.is_broken) flow.state = FlowState::failed;
  flows_.push_back(flow);
  if (connection.is_broken) return;
  ++open_flows_;
  if (connection.first_waiting == kNoFlow)
    connection.first_waiting = number;
  else
    flows_[connection.last_waiting].next = number;
  connection.last_waiting = number;
  post_waiting(key.connection);
}

void World::post_waiting(uint32_t index) {
  Connection& connection = connections_[index];
  Host& host = *hosts_[requester_of(routes()[index])];
  while (connection.first_waiting != kNoFlow && connection.posted < description_.traffic.outstanding) {
    const uint32_t number = connection.first_waiting;
    Flow& flow = flows_[number];
    connection.first_waiting = flow.next;
    flow.state = FlowState::posted;
    ++connection.posted;
    host.post_send(connection.requester,
                   {.wr_id = number,
                    .operation = description_.traffic.operation,
                    .bytes = flow.bytes,
                    .immediate = number},
                   now_ps_);
  }
}

void World::on_completion(uint32_t host, const transport::Completion& completion, TimePs /*now_ps*/) {
  constexpr auto kReceives = static_cast<uint8_t>(transport::CompletionOpcode::recv);
  if (static_cast<uint8_t>(completion.opcode) >= kReceives)
    on_receive_completion(host, completion);
  else
    on_send_completion(completion);
}

void World::on_send_completion(const transport::Completion& completion) {
  Flow& flow = flows_[completion.wr_id];
  const uint32_t index = flow.connection;
  Connection& connection = connections_[index];
  flow.end_ns = now_ns();
  const uint64_t retransmits = connection.requester->counters.retransmitted_packets;
  flow.retransmits = static_cast<uint32_t>(retransmits - connection.retransmits);
  connection.retransmits = retransmits;
  --connection.posted;
  --open_flows_;
  if (completion.status != transport::CompletionStatus::success) {
    flow.state = FlowState::failed;
    return fail_waiting(connection);
  }
  flow.state = FlowState::done;
  pattern_->on_sent({.connection = index, .tag = flow.tag}, *this);
  post_waiting(index);
}

void World::on_receive_completion(uint32_t host, const transport::Completion& completion) {
  if (completion.status != transport::CompletionStatus::success) return;  // flushed with its connection
  const auto index = static_cast<uint32_t>(completion.wr_id);
  hosts_[host]->post_receive(connections_[index].responder, index);
  pattern_->on_delivered({.connection = index, .tag = flows_[completion.immediate_or_rkey].tag}, *this);
}

/// What waits for a broken connection has failed, too.
void World::fail_waiting(Connection& connection) {
  connection.is_broken = true;
  while (connection.first_waiting != kNoFlow) {
    Flow& flow = flows_[connection.first_waiting];
    connection.first_waiting = flow.next;
    flow.state = FlowState::failed;
    flow.end_ns = now_ns();
    --open_flows_;
  }
}

}  // namespace faultline::fabric
