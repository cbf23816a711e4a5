// SPDX-License-Identifier: BSD-3-Clause
// Congestion notifications: sending and receiving CNPs (IBA A17.9.3).
#include "stack/transport/core/cnp.hpp"

#include <cassert>

namespace faultline::transport {

void Cnp::on_marked(QueuePair& qp) {
  ++context_.counters.ecn_marked_received;
  if (qp.cnp_pending || context_.now_ns < qp.next_cnp_ns) return;
  qp.cnp_pending = true;
  context_.make_ready(qp);
}

void Cnp::send(QueuePair& qp) {
  TxFrame* frame = context_.tx.next();
  if (frame == nullptr) return context_.make_ready(qp);
  wire::PacketFields fields;
  fields.bth.opcode = wire::Opcode::cnp;
  fields.bth.becn = true;
  fields.bth.destination_qpn = qp.attributes.destination_qpn;
  fields.ipv4_identification = qp.ipv4_identification++;
  const std::span<uint8_t> bytes(frame->data, frame->capacity_bytes);
  const uint8_t* payload = qp.frame.write_headers(bytes, fields, 0);
  assert(payload != nullptr);
  static_cast<void>(payload);
  context_.tx.commit(qp.frame.seal(bytes, fields.bth.opcode, 0), qp.loopback);
  ++context_.counters.cnps_sent;
  qp.cnp_pending = false;
  qp.next_cnp_ns = context_.now_ns + context_.config.congestion.cnp_interval_ns;
}

void Cnp::on_notification(QueuePair& qp) {
  ++context_.counters.cnps_received;
  if (qp.rate_control != nullptr) qp.rate_control->on_notification(context_.now_ns);
}

}  // namespace faultline::transport
