// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/world/network.hpp"

#include <algorithm>
#include <utility>

namespace faultline::sim {

Network::Network(const NetworkScript& script, uint64_t seed) : Network(script, Random(seed)) {}

Network::Network(const NetworkScript& script, Random random)
    : World(script.turn_ns, script.keep_trace), switches_(script.switches), ipv6_(script.ipv6) {
  trace.names.clear();
  for (size_t i = 0; i < script.hosts.size(); ++i) {
    const std::string name = "h" + std::to_string(i);
    SimLink& up = add_link(up_, script.up[i], random, name + ">");
    SimLink& down = add_link(down_, script.down[i], random, ">" + name);
    const auto link = static_cast<uint16_t>(2 * i);
    const auto send = [this, i, link, &up](Frame frame, bool loopback) {
      return loopback ? loop_back(hosts_[i], link, std::move(frame)) : up.send(now(), std::move(frame));
    };
    add_host(hosts_.emplace_back(script.hosts[i], random, send), down, script.ipv6);
  }
  for (size_t i = 0; i < script.between.size(); ++i)
    add_link(between_, script.between[i], random,
             "s" + std::to_string(i / switches_) + ">s" + std::to_string(i % switches_));
}

SimLink& Network::add_link(std::deque<SimLink>& links, const LinkScript& script, Random& random,
                           std::string name) {
  const auto number = static_cast<uint16_t>(trace.names.size());
  trace.names.push_back(std::move(name));
  return links.emplace_back(script, random.fork(), number, trace);
}

TimeNs Network::next_at_switches() const {
  TimeNs next = kNever;
  for (const std::deque<SimLink>* links : {&up_, &between_})
    for (const SimLink& link : *links) next = std::min(next, link.next_arrival());
  return next;
}

void Network::forward() {
  for (uint32_t host = 0; host < up_.size(); ++host) forward_from(up_[host], host % switches_);
  for (uint32_t i = 0; i < between_.size(); ++i) forward_from(between_[i], i % switches_);
}

void Network::forward_from(SimLink& link, uint32_t at_switch) {
  // By the last byte of the IP destination: a damaged MAC address must not bring a frame to another host,
  // whose port would drop it, and the ICRC covers the IP address.
  constexpr size_t kIpv4Destination = 14 + 19, kIpv6Destination = 14 + 39;
  const size_t last_byte = ipv6_ ? kIpv6Destination : kIpv4Destination;
  Frame frame;
  while (link.take(now(), frame)) {
    const uint32_t host = frame.size() <= last_byte ? ~0U : frame[last_byte] - 1U;
    if (host >= down_.size()) continue;  // no route
    const uint32_t home = host % switches_;
    (home == at_switch ? down_[host] : between_[at_switch * switches_ + home]).send(now(), std::move(frame));
  }
}

}  // namespace faultline::sim
