// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/world/world.hpp"

#include <algorithm>
#include <utility>

namespace faultline::sim {

namespace {

constexpr uint64_t kLoopbackNs = 500;

}  // namespace

void World::add_host(SimHost& host, SimLink& from_wire, bool ipv6) {
  host.number = static_cast<uint32_t>(hosts_.size());
  const auto last = static_cast<uint8_t>(host.number + 1);
  host.mac.bytes = {0x02, 0x46, 0x4c, 0, 0, last};
  if (ipv6)
    host.gid.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
  else
    host.gid = wire::Gid::from_ipv4(0xc6120000 + last);  // 198.18.0.1 for the first
  hosts_.push_back(&host);
  wires_.push_back(&from_wire);
  next_turns_.push_back(kNever);
}

TimeNs World::loop_back(SimHost& host, uint16_t link, Frame frame) {
  trace.add(now_, link, 0, frame).looped = true;
  host.looped.emplace(now_ + kLoopbackNs, std::move(frame));
  return now_ + kLoopbackNs;
}

transport::AddressVector World::path(const SimHost& from, const SimHost& to) const {
  transport::AddressVector av;
  av.path.source_mac = from.mac;
  av.path.destination_mac = to.mac;
  av.path.source_gid = from.gid;
  av.path.destination_gid = to.gid;
  av.loopback = &from == &to;
  return av;
}

bool World::step() {
  const TimeNs action = actions_.empty() ? kNever : actions_.begin()->first;
  const TimeNs at_switches = next_at_switches();
  TimeNs next = std::min(action, at_switches);
  for (size_t i = 0; i < hosts_.size(); ++i) {
    next_turns_[i] = hosts_[i]->next_turn(turn_ns_, *wires_[i]);
    next = std::min(next, next_turns_[i]);
  }
  if (next == kNever) return false;
  ++steps;
  now_ = std::max(now_, next);
  if (action <= now_) {
    const std::function<void()> due = std::move(actions_.begin()->second);
    actions_.erase(actions_.begin());
    due();
    return true;
  }
  if (at_switches <= now_) forward();
  for (size_t i = 0; i < hosts_.size(); ++i)
    if (next_turns_[i] <= now_) hosts_[i]->turn(now_, *wires_[i]);
  return true;
}

bool World::run_until(const std::function<bool()>& done, TimeNs limit_ns) {
  while (!done()) {
    if (!step()) return true;
    if (now_ > limit_ns || steps > kStepLimit) return false;
  }
  return true;
}

}  // namespace faultline::sim
