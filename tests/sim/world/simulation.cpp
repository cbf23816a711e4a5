// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/world/simulation.hpp"

#include <algorithm>

#include "stack/wire/packet/packet.hpp"

namespace faultline::sim {

namespace {

constexpr size_t kBurst = 32;
constexpr uint64_t kLoopbackNs = 500;

}  // namespace

SimHost::SimHost(const HostScript& script, Random& random, SimPort::Wire wire)
    : memory(script.memory, random.fork()),
      port(script.port, random.fork(), std::move(wire)),
      random_(random.fork()) {
  core_storage.emplace(script.core, memory, port, this);
}

void SimHost::on_qp_event(uint32_t qpn, void* /*user*/, transport::AsyncEvent event) {
  events.push_back({qpn, event});
}

status::FailureCause SimHost::on_qp_failure(const transport::QpFailure& failure) {
  failures.push_back(failure);
  return failure.cause;
}

void SimHost::on_cq_event(transport::CompletionQueue* /*cq*/, transport::AsyncEvent /*event*/) {
  ++cq_errors;
}

void SimHost::deliver(const Frame& frame, std::vector<transport::RxFrame>& burst) {
  // The glue drops frames of other kinds before they reach the core.
  if (wire::classify(frame) != wire::FrameKind::roce) return;
  const auto checks = static_cast<uint32_t>(random_.below(4));
  transport::RxFrame received;
  if (port.receive(frame, checks, received)) burst.push_back(received);
}

void SimHost::turn(TimeNs now, SimLink& from_wire) {
  port.advance(now);
  memory.advance(now);
  std::vector<transport::RxFrame> burst;
  Frame frame;
  while (burst.size() < kBurst && from_wire.take(now, frame)) deliver(frame, burst);
  while (burst.size() < kBurst && !looped.empty() && looped.begin()->first <= now) {
    deliver(looped.begin()->second, burst);
    looped.erase(looped.begin());
  }
  if (!burst.empty()) core().on_packets(burst, now);
  core().poll(now);
  last_turn_ = now;
}

TimeNs SimHost::next_turn(uint64_t turn_ns, const SimLink& from_wire) const {
  TimeNs next = std::min({core().next_deadline(), memory.next_event(), from_wire.next_arrival()});
  if (!looped.empty()) next = std::min(next, looped.begin()->first);
  if (next == kNever) return kNever;
  return last_turn_ ? std::max(next, *last_turn_ + turn_ns) : next;
}

void SimHost::end() {
  core_storage.reset();
}

Simulation::Simulation(const SimulationScript& script, uint64_t seed) : Simulation(script, Random(seed)) {}

Simulation::Simulation(const SimulationScript& script, Random random)
    : a_to_b(script.a_to_b, random.fork(), true, trace),
      b_to_a(script.b_to_a, random.fork(), false, trace),
      a(script.a, random, wire_of(true)),
      b(script.b, random, wire_of(false)),
      turn_ns_(script.turn_ns) {
  trace.keep = script.keep_trace;
  a.mac.bytes = {0x02, 0x46, 0x4c, 0, 0, 1};
  b.mac.bytes = {0x02, 0x46, 0x4c, 0, 0, 2};
  if (script.ipv6) {
    a.gid.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    b.gid.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  } else {
    a.gid = wire::Gid::from_ipv4(0xc6120001);  // 198.18.0.1
    b.gid = wire::Gid::from_ipv4(0xc6120002);
  }
}

SimPort::Wire Simulation::wire_of(bool from_a) {
  return [this, from_a](Frame frame, bool loopback) {
    if (!loopback) return (from_a ? a_to_b : b_to_a).send(now_, std::move(frame));
    trace.add(now_, from_a, 0, frame).looped = true;
    (from_a ? a : b).looped.emplace(now_ + kLoopbackNs, std::move(frame));
    return now_ + kLoopbackNs;
  };
}

transport::AddressVector Simulation::path(const SimHost& from, const SimHost& to) const {
  transport::AddressVector av;
  av.path.source_mac = from.mac;
  av.path.destination_mac = to.mac;
  av.path.source_gid = from.gid;
  av.path.destination_gid = to.gid;
  av.loopback = &from == &to;
  return av;
}

bool Simulation::step() {
  const TimeNs a_next = a.next_turn(turn_ns_, b_to_a);
  const TimeNs b_next = b.next_turn(turn_ns_, a_to_b);
  const TimeNs action = actions_.empty() ? kNever : actions_.begin()->first;
  const TimeNs next = std::min({a_next, b_next, action});
  if (next == kNever) return false;
  ++steps;
  now_ = std::max(now_, next);
  if (action <= now_) {
    const std::function<void()> due = std::move(actions_.begin()->second);
    actions_.erase(actions_.begin());
    due();
    return true;
  }
  if (a_next <= now_) a.turn(now_, b_to_a);
  if (b_next <= now_) b.turn(now_, a_to_b);
  return true;
}

bool Simulation::run_until(const std::function<bool()>& done, TimeNs limit_ns) {
  while (!done()) {
    if (!step()) return true;
    if (now_ > limit_ns || steps > kStepLimit) return false;
  }
  return true;
}

}  // namespace faultline::sim
