// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/context/recorder.hpp"

#include <algorithm>
#include <bit>

#include "stack/record/ring_writer.hpp"
#include "stack/transport/qp/snapshot.hpp"
#include "stack/wire/packet/ecn.hpp"

namespace faultline::transport {
namespace {

using record::Kind;
using record::Record;

constexpr uint64_t kBytesPerMegabyte = 1'000'000;

uint16_t flags_of(const wire::Bth& bth) {
  return static_cast<uint16_t>(
      (bth.ack_request ? record::kAckRequest : 0) | (bth.page_fault ? record::kPageFault : 0) |
      (bth.page_ready ? record::kPageReady : 0) | (bth.solicited ? record::kSolicited : 0));
}

uint32_t packets_of(const wire::SackEth& sack) {
  uint32_t count = 0;
  for (const uint64_t part : sack.map) count += static_cast<uint32_t>(std::popcount(part));
  return count;
}

Record record_of(const CoreContext& context, Kind kind, uint32_t qpn) {
  Record record;
  record.time_ns = context.now_ns;
  record.qpn = qpn;
  record.kind = kind;
  return record;
}

/// A number that a fault and its end share: generations of a QP's roles differ.
uint32_t number_of(const FaultWaiter& waiter) {
  return static_cast<uint32_t>(waiter.role) << 24 | (waiter.generation & 0xffffffU);
}

uint16_t fault_flags(const FaultWaiter& waiter) {
  return waiter.role == FaultRole::requester ? uint16_t{0} : uint16_t{record::kOfPeer};
}

}  // namespace

namespace {

Record& add_sent(CoreContext& context, const QueuePair& qp, const wire::PacketFields& fields,
                 uint32_t payload_bytes) {
  const wire::OpcodeInfo& info = wire::opcode_info(fields.bth.opcode);
  Record record = record_of(context, Kind::sent, qp.qpn);
  record.psn = fields.bth.psn.value();
  record.length_bytes = payload_bytes;
  record.flags = flags_of(fields.bth);
  record.code = static_cast<uint8_t>(fields.bth.opcode);
  if (info.has(wire::kSackEth))
    record.argument = packets_of(fields.sack_eth);
  else if (info.has(wire::kAeth))
    record.argument = fields.aeth.msn;
  else if (info.operation == wire::Operation::read_request)
    record.argument = fields.reth.length_bytes;
  else if (info.service == wire::Service::ud)
    record.argument = fields.bth.destination_qpn;
  if (info.has(wire::kAeth)) record.syndrome = fields.aeth.syndrome;
  return context.recorder->add(record);
}

}  // namespace

void record_sent(CoreContext& context, const QueuePair& qp, const wire::PacketFields& fields,
                 uint32_t payload_bytes) {
  add_sent(context, qp, fields, payload_bytes);
}

Record& record_received(CoreContext& context, uint32_t qpn, const wire::Packet& packet) {
  const wire::OpcodeInfo& info = *packet.info;
  Record record = record_of(context, Kind::received, qpn);
  record.psn = packet.bth.psn.value();
  record.length_bytes = packet.payload_bytes;
  record.flags = static_cast<uint16_t>(flags_of(packet.bth) |
                                       (packet.ecn == wire::kEcnCongestionExperienced ? record::kMarked : 0));
  record.code = static_cast<uint8_t>(packet.bth.opcode);
  if (info.has(wire::kSackEth))
    record.argument = packets_of(packet.sack_eth());
  else if (info.has(wire::kAeth))
    record.argument = packet.aeth().msn;
  else if (info.operation == wire::Operation::read_request)
    record.argument = packet.reth().length_bytes;
  else if (info.service == wire::Service::ud)
    record.argument = packet.deth().source_qpn;
  if (info.has(wire::kAeth)) record.syndrome = packet.aeth().syndrome;
  return context.recorder->add(record);
}

void record_dropped(CoreContext& context, const wire::Packet& packet, uint8_t reason) {
  Record record = record_of(context, Kind::dropped, packet.bth.destination_qpn);
  record.psn = packet.bth.psn.value();
  record.code = reason;
  record.flags = packet.info != nullptr && packet.info->request ? uint16_t{record::kOfPeer} : uint16_t{0};
  context.recorder->add(record);
}

void record_request(CoreContext& context, const QueuePair& qp, const SendWqe& wqe,
                    const wire::PacketFields& fields, uint32_t payload_bytes, bool starts) {
  Record& record = add_sent(context, qp, fields, payload_bytes);
  if (!starts) return;
  record.request = static_cast<uint8_t>(record::kStartsRequest + static_cast<uint8_t>(wqe.opcode));
  record.argument = wqe.length_bytes;
  record.number = static_cast<uint16_t>(qp.requester.current);
}

namespace {

/// Ring index of the first work request without a packet. One that a page holds may have PSNs and no packet.
uint32_t first_unsent(QueuePair& qp) {
  const RequesterState& state = qp.requester;
  const bool has_started = qp.send_ring.head() != state.started;
  const bool is_held = has_started && qp.progress_at(state.started - 1).first_psn >= state.sent_psn;
  return is_held ? state.started - 1 : state.started;
}

void record_posts(CoreContext& context, QueuePair& qp, uint32_t first, uint32_t tail) {
  uint32_t& next = qp.recorded.posted;
  if (static_cast<int32_t>(first - next) > 0) next = first;
  for (; next != tail; ++next) {
    const SendWqe& wqe = *qp.send_ring.header_at(next);
    Record record = record_of(context, Kind::posted, qp.qpn);
    record.code = static_cast<uint8_t>(wqe.opcode);
    record.argument = wqe.length_bytes;
    record.number = static_cast<uint16_t>(next);
    context.recorder->add(record);
  }
}

}  // namespace

void record_waiting(CoreContext& context, QueuePair& qp) {
  using status::WaitsFor;
  if (qp.protocol() == Protocol::datagram) return;
  const uint32_t tail = qp.send_ring.tail();
  if (qp.requester.current == tail) {
    qp.recorded.wait = WaitsFor::nothing;
    return;
  }
  const uint32_t first = first_unsent(qp);
  record_posts(context, qp, first, tail);
  const int32_t window_packets = window_packets_of(qp, context.config);
  const WaitsFor wait = requests_wait_of(qp, window_packets, context.now_ns);
  const wire::Psn psn = qp.send_psn();
  if (wait == qp.recorded.wait && psn == qp.recorded.wait_psn) return;
  qp.recorded.wait = wait;
  qp.recorded.wait_psn = psn;
  // What the next turn sends waits for nothing.
  if (wait == WaitsFor::turn || wait == WaitsFor::nothing) return;
  Record record = record_of(context, Kind::waiting, qp.qpn);
  record.code = static_cast<uint8_t>(wait);
  record.psn = psn.value();
  record.argument = static_cast<uint32_t>(std::max(window_packets, 0));
  record.length_bytes = tail - first;
  record.number =
      static_cast<uint16_t>(std::min<uint32_t>(whole_window_packets_of(qp, context.config), UINT16_MAX));
  context.recorder->add(record);
}

void record_completion(CoreContext& context, const QueuePair& qp, const CompletionQueue& cq,
                       const Completion& completion) {
  constexpr unsigned kReceive = 128;  // IBV_WC_RECV
  Record record = record_of(context, Kind::completion, qp.qpn);
  record.argument = cq.unread();
  record.length_bytes = cq.capacity();
  record.code = static_cast<uint8_t>(completion.status);
  if ((static_cast<unsigned>(completion.opcode) & kReceive) != 0)
    record.flags = record::kOfPeer;
  else
    record.number = static_cast<uint16_t>(qp.send_ring.head() - 1);  // retired before it completes
  context.recorder->add(record);
}

void record_fault(CoreContext& context, QueuePair& qp, const odp::FaultRequest& request,
                  const FaultWaiter& waiter, FaultAnswer answer) {
  Record record = record_of(context, Kind::fault, qp.qpn);
  record.argument = number_of(waiter);
  record.length_bytes = static_cast<uint32_t>(std::min<uint64_t>(request.length_bytes, UINT32_MAX));
  record.psn =
      waiter.role == FaultRole::requester ? qp.send_psn().value() : qp.responder.expected_psn.value();
  record.flags = fault_flags(waiter);
  context.recorder->add(record);
  if (answer == FaultAnswer::served) record_fault_end(context, waiter);
}

void record_fault_end(CoreContext& context, const FaultWaiter& waiter) {
  Record record = record_of(context, Kind::fault_end, waiter.qpn);
  record.argument = number_of(waiter);
  record.flags = fault_flags(waiter);
  context.recorder->add(record);
}

void record_timer(CoreContext& context, const QueuePair& qp, uint64_t timeouts_before,
                  uint64_t probes_before) {
  Record record = record_of(context, Kind::timer, qp.qpn);
  record.psn = qp.requester.unacked_psn.value();
  record::TimerCode code = record::TimerCode::other;
  if (context.counters.probes_sent != probes_before) code = record::TimerCode::early_probe;
  if (context.counters.timeouts != timeouts_before) code = record::TimerCode::ack_timeout;
  // Timers that are armed again are no event of the connection.
  if (code == record::TimerCode::other) return;
  record.code = static_cast<uint8_t>(code);
  context.recorder->add(record);
}

void record_rate(CoreContext& context, const QueuePair& qp, uint64_t rate_bytes_per_s) {
  Record record = record_of(context, Kind::rate, qp.qpn);
  record.argument =
      static_cast<uint32_t>(std::min<uint64_t>(rate_bytes_per_s / kBytesPerMegabyte, UINT32_MAX));
  context.recorder->add(record);
}

void record_connection(CoreContext& context, const QueuePair& qp) {
  record::ConnectionRow row;
  row.time_ns = context.now_ns;
  row.qpn = qp.qpn;
  row.peer_qpn = qp.protocol() == Protocol::datagram ? 0 : qp.attributes.destination_qpn;
  row.gid = qp.attributes.av.path.source_gid.bytes;
  row.peer_gid = qp.attributes.av.path.destination_gid.bytes;
  row.mtu_bytes = qp.mtu_bytes;
  row.qp_type = static_cast<uint8_t>(qp.type);
  context.recorder->connections().add(row);
}

}  // namespace faultline::transport
