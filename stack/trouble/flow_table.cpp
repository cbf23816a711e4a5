// SPDX-License-Identifier: BSD-3-Clause
#include "stack/trouble/flow_table.hpp"

#include <algorithm>

namespace faultline::trouble {
namespace {

constexpr uint64_t kBitsPerByte = 8;
constexpr uint64_t kNsPerSecond = 1'000'000'000;

}  // namespace

bool FlowTable::has(const Flow& flow, const PacketOnWay& packet) {
  if (flow.is_outbound != packet.is_outbound || flow.object.device != packet.object.device) return false;
  switch (flow.action->flow) {
    case FlowScope::qp:
      return flow.object == packet.object && flow.peer == packet.peer;
    case FlowScope::peer:
      return flow.peer == packet.peer;
    case FlowScope::port:
      return true;
  }
  return false;
}

bool FlowTable::begin(const Action& action, const PacketOnWay& packet, TimeNs now) {
  std::erase_if(flows_, [now](const Flow& flow) { return flow.until <= now; });
  if (std::ranges::any_of(flows_,
                          [&](const Flow& flow) { return flow.action == &action && has(flow, packet); }))
    return false;
  const TimeNs until = action.duration_ns == 0 ? kNever : now + action.duration_ns;
  flows_.push_back({&action, packet.is_outbound, packet.object, std::string(packet.peer), until, now});
  return true;
}

/// A token bucket of one packet, as its virtual schedule: a packet leaves when the tokens of those before it
/// have come. Rounds the time of a packet up to 1 ns.
bool FlowTable::pass_queue(Flow& flow, uint64_t frame_bytes, TimeNs& at) {
  const uint64_t bits_per_second = flow.action->bits_per_second;
  const uint64_t waits_ns = flow.free_at > at ? flow.free_at - at : 0;
  // The queue is bounded, so the product fits: a GiB is 8.6e18 bits of ns.
  const uint64_t queued_bytes = waits_ns * bits_per_second / (kBitsPerByte * kNsPerSecond);
  if (waits_ns != 0 && queued_bytes + frame_bytes > flow.action->queue_bytes) return false;
  at += waits_ns;
  const uint64_t bits_of_ns = frame_bytes * kBitsPerByte * kNsPerSecond;
  flow.free_at = at + (bits_of_ns + bits_per_second - 1) / bits_per_second;
  return true;
}

FlowTable::Passage FlowTable::pass(const PacketOnWay& packet, TimeNs now) {
  TimeNs at = now;
  for (Flow& flow : flows_) {
    if (flow.until <= now || !has(flow, packet)) continue;
    switch (flow.action->kind) {
      case Action::Kind::partition:
        return {.is_lost = true};
      case Action::Kind::rate:
        if (!pass_queue(flow, packet.frame_bytes, at)) return {.is_lost = true};
        break;
      default:  // slow: one server, and each packet takes the same time
        at = flow.free_at = std::max(flow.free_at, at) + flow.action->service_ns;
    }
  }
  return {.is_lost = false, .delay_ns = at - now};
}

}  // namespace faultline::trouble
