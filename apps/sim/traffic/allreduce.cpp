// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/traffic/allreduce.hpp"

#include <algorithm>

namespace faultline::fabric {

RingAllreduce::RingAllreduce(const TrafficParameters& traffic, uint32_t hosts)
    : traffic_(traffic),
      hosts_(hosts),
      steps_(2 * (hosts - 1)),
      bytes_(std::max(traffic.message_bytes / hosts / traffic.connections, 1U)) {
  for (uint32_t ring = 0; ring < traffic.connections; ++ring)
    for (uint32_t host = 0; host < hosts; ++host)
      routes_.push_back({.source = host, .destination = (host + 1) % hosts});
  finished_.resize(routes_.size());
}

void RingAllreduce::on_time(TimeNs /*now*/, Starter& starter) {
  has_begun_ = true;
  for (uint32_t i = 0; i < routes_.size(); ++i) starter.start({.connection = i, .tag = 0}, bytes_);
}

/// The tag counts the steps of all rounds.
void RingAllreduce::on_delivered(const FlowKey& key, Starter& starter) {
  const uint32_t step = key.tag + 1;
  if (step % steps_ == 0) {
    ++finished_[key.connection];
    if (traffic_.messages != 0 && finished_[key.connection] == traffic_.messages) return;
  }
  const uint32_t receiver = routes_[key.connection].destination;
  const uint32_t ring = key.connection / hosts_;
  starter.start({.connection = ring * hosts_ + receiver, .tag = step}, bytes_);
}

uint64_t RingAllreduce::rounds() const {
  return *std::ranges::min_element(finished_);
}

TreeAllreduce::TreeAllreduce(const TrafficParameters& traffic, uint32_t hosts)
    : traffic_(traffic),
      hosts_(hosts),
      chunks_((traffic.message_bytes - 1) / traffic.chunk_bytes + 1),
      arrived_(size_t{hosts} * chunks_) {
  for (uint32_t host = 1; host < hosts; ++host) {
    const uint32_t parent = (host - 1) / 2;
    routes_.push_back({.source = host, .destination = parent});
    routes_.push_back({.source = parent, .destination = host});
  }
}

uint32_t TreeAllreduce::children_of(uint32_t host) const {
  return 2 * host + 2 < hosts_ ? 2 : 2 * host + 1 < hosts_ ? 1 : 0;
}

uint32_t TreeAllreduce::bytes_of(uint32_t chunk) const {
  return chunk + 1 < chunks_ ? traffic_.chunk_bytes
                             : traffic_.message_bytes - (chunks_ - 1) * traffic_.chunk_bytes;
}

void TreeAllreduce::on_time(TimeNs /*now*/, Starter& starter) {
  has_begun_ = true;
  begin_round(starter);
}

void TreeAllreduce::begin_round(Starter& starter) {
  std::ranges::fill(arrived_, 0);
  results_ = 0;
  for (uint32_t host = 1; host < hosts_; ++host)
    if (children_of(host) == 0)
      for (uint32_t chunk = 0; chunk < chunks_; ++chunk) send_up(host, chunk, starter);
}

void TreeAllreduce::send_up(uint32_t host, uint32_t chunk, Starter& starter) {
  starter.start({.connection = up_from(host), .tag = chunk}, bytes_of(chunk));
}

void TreeAllreduce::send_down(uint32_t host, uint32_t chunk, Starter& starter) {
  for (uint32_t child = 2 * host + 1; child <= 2 * host + children_of(host); ++child)
    starter.start({.connection = down_to(child), .tag = chunk}, bytes_of(chunk));
}

void TreeAllreduce::on_delivered(const FlowKey& key, Starter& starter) {
  const uint32_t host = routes_[key.connection].destination;
  const bool is_result = key.connection % 2 == 1;
  if (!is_result) {
    if (++arrived_[size_t{host} * chunks_ + key.tag] != children_of(host)) return;
    if (host == 0) return send_down(0, key.tag, starter);
    return send_up(host, key.tag, starter);
  }
  send_down(host, key.tag, starter);
  if (++results_ != uint64_t{hosts_ - 1} * chunks_) return;
  ++rounds_;
  if (traffic_.messages == 0 || rounds_ != traffic_.messages) begin_round(starter);
}

uint64_t TreeAllreduce::rounds() const {
  return rounds_;
}

}  // namespace faultline::fabric
