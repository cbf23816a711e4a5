// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/world/host.hpp"

#include <algorithm>

#include "stack/wire/packet/packet.hpp"

namespace faultline::sim {

namespace {

constexpr size_t kBurst = 32;

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

}  // namespace faultline::sim
