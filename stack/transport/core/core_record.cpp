// SPDX-License-Identifier: BSD-3-Clause
// The core's work with a recorder or reports of dropped frames: around each packet it compares counters, so
// that the code that counts is not repeated.
#include <algorithm>
#include <array>
#include <numeric>

#include "stack/record/record.hpp"
#include "stack/transport/context/recorder.hpp"
#include "stack/transport/core/core_impl.hpp"

namespace faultline::transport {
namespace {

uint64_t rate_of(const QueuePair& qp, TimeNs now_ns) {
  return qp.rate_control != nullptr ? qp.rate_control->rate(now_ns) : 0;
}

size_t flat_index_of(uint8_t reason) {
  return reason < record::kParseErrors
             ? flat_index(static_cast<DropReason>(reason))
             : flat_index(static_cast<wire::ParseError>(reason - record::kParseErrors));
}

}  // namespace

uint64_t Core::Impl::drop_count() const {
  return std::accumulate(context.counters.drops.begin(), context.counters.drops.end(), uint64_t{0});
}

bool Core::Impl::on_frame_observed(const RxFrame& frame, const wire::Packet& packet, wire::ParseError error) {
  const uint64_t before = drop_count();
  context.last_drop = CoreContext::kNoDrop;
  const bool kept =
      context.recorder != nullptr ? on_frame_recorded(frame, packet, error) : on_frame(frame, packet, error);
  if (!context.config.reports_drops || kept || context.last_drop == CoreContext::kNoDrop) return kept;
  // A multicast packet is dropped only if no member of the group takes it.
  const bool is_multicast =
      error == wire::ParseError::none && packet.bth.destination_qpn == wire::kMulticastQpn;
  const size_t members = is_multicast ? multicast.members(packet.destination_gid()).size() : 0;
  if (context.last_drop < record::kParseErrors && drop_count() - before < members) return kept;
  if (context.events != nullptr) context.events->on_frame_dropped(frame, flat_index_of(context.last_drop));
  return kept;
}

bool Core::Impl::on_frame_recorded(const RxFrame& frame, const wire::Packet& packet, wire::ParseError error) {
  const bool is_readable = error == wire::ParseError::none;
  if (is_readable && packet.bth.destination_qpn == wire::kMulticastQpn)
    return on_multicast_recorded(packet, frame);
  QueuePair* const qp = is_readable ? find(packet.bth.destination_qpn) : nullptr;
  const uint64_t rate = qp != nullptr ? rate_of(*qp, context.now_ns) : 0;
  const uint64_t held = context.counters.packets_held;
  const uint64_t parked = context.counters.packets_parked;
  Copy copy;
  if (qp != nullptr) copy = record_copy(*qp, packet);
  context.last_drop = CoreContext::kNoDrop;
  const bool kept = on_frame(frame, packet, error);
  if (qp != nullptr) {
    complete_copy(copy);
    copy.record->flags = static_cast<uint16_t>(
        copy.record->flags | (context.counters.packets_held != held ? record::kHeld : 0) |
        (context.counters.packets_parked != parked ? record::kParked : 0));
    if (const uint64_t now = rate_of(*qp, context.now_ns); now != rate) record_rate(context, *qp, now);
  }
  if (context.last_drop != CoreContext::kNoDrop) record_dropped(context, packet, context.last_drop);
  return kept;
}

Core::Impl::Copy Core::Impl::record_copy(QueuePair& qp, const wire::Packet& packet) {
  return {&qp, &record_received(context, qp.qpn, packet), qp.rx_packets};
}

/// A packet that was refused before it was the QP's has no record of its receipt; that of the drop has the
/// reason.
void Core::Impl::complete_copy(const Copy& copy) {
  if (copy.qp->rx_packets == copy.packets_before) copy.record->kind = record::Kind::none;
}

/// Each member of the group that receives the packet has a record.
bool Core::Impl::on_multicast_recorded(const wire::Packet& packet, const RxFrame& frame) {
  std::array<Copy, kMostCopies> copies;
  size_t count = 0;
  for (QueuePair* const member : multicast.members(packet.destination_gid()))
    if (count != copies.size()) copies[count++] = record_copy(*member, packet);
  context.last_drop = CoreContext::kNoDrop;
  const bool kept = on_frame(frame, packet, wire::ParseError::none);
  for (size_t i = 0; i < count; ++i) complete_copy(copies[i]);
  if (context.last_drop != CoreContext::kNoDrop) record_dropped(context, packet, context.last_drop);
  return kept;
}

}  // namespace faultline::transport
