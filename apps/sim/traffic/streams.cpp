// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/traffic/streams.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace faultline::fabric {

Streams::Streams(const TrafficParameters& traffic, const std::vector<Route>& routes, chaos::Random random)
    : traffic_(traffic) {
  for (uint32_t copy = 0; copy < traffic.connections; ++copy)
    routes_.insert(routes_.end(), routes.begin(), routes.end());
  for (uint32_t i = 0; i < routes_.size(); ++i)
    begins_.push_back({.at_ns = random.below(traffic.spread_ns + 1), .connection = i});
  std::ranges::stable_sort(begins_, {}, &Begin::at_ns);
  started_.resize(routes_.size());
}

TimeNs Streams::next_ns() const {
  return next_begin_ == begins_.size() ? kNever : begins_[next_begin_].at_ns;
}

void Streams::on_time(TimeNs now, Starter& starter) {
  for (; next_begin_ != begins_.size() && begins_[next_begin_].at_ns <= now; ++next_begin_)
    for (uint32_t i = 0; i < traffic_.outstanding; ++i) start_next(begins_[next_begin_].connection, starter);
}

void Streams::on_sent(const FlowKey& key, Starter& starter) {
  start_next(key.connection, starter);
}

void Streams::start_next(uint32_t connection, Starter& starter) {
  if (traffic_.messages != 0 && started_[connection] == traffic_.messages) return;
  const auto tag = static_cast<uint32_t>(started_[connection]++);
  starter.start({.connection = connection, .tag = tag}, traffic_.message_bytes);
}

std::vector<Route> permutation_routes(uint32_t hosts, chaos::Random random) {
  std::vector<uint32_t> to(hosts);
  std::iota(to.begin(), to.end(), 0);
  for (uint32_t i = hosts - 1; i > 0; --i) std::swap(to[i], to[random.below(i)]);
  std::vector<Route> routes;
  for (uint32_t host = 0; host < hosts; ++host) routes.push_back({.source = host, .destination = to[host]});
  return routes;
}

std::vector<Route> incast_routes(uint32_t hosts, uint32_t receiver, uint32_t senders, chaos::Random random) {
  std::vector<uint32_t> others;
  for (uint32_t host = 0; host < hosts; ++host)
    if (host != receiver) others.push_back(host);
  std::vector<Route> routes;
  for (uint32_t i = 0; i < senders; ++i) {
    std::swap(others[i], others[i + random.below(others.size() - i)]);
    routes.push_back({.source = others[i], .destination = receiver});
  }
  return routes;
}

std::vector<Route> all_to_all_routes(uint32_t hosts) {
  std::vector<Route> routes;
  for (uint32_t step = 1; step < hosts; ++step)
    for (uint32_t host = 0; host < hosts; ++host)
      routes.push_back({.source = host, .destination = (host + step) % hosts});
  return routes;
}

}  // namespace faultline::fabric
