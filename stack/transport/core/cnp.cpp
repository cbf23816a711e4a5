// SPDX-License-Identifier: BSD-3-Clause
// Congestion notifications: sending and receiving CNPs (IBA A17.9.3).
#include "stack/transport/core/cnp.hpp"

#include "stack/transport/context/emit.hpp"

namespace faultline::transport {

void Cnp::on_marked(QueuePair& qp) {
  ++context_.counters.ecn_marked_received;
  if (qp.cnp_pending || context_.now_ns < qp.next_cnp_ns) return;
  qp.cnp_pending = true;
  context_.make_ready(qp);
}

void Cnp::send(QueuePair& qp) {
  wire::PacketFields fields;
  fields.bth.opcode = wire::Opcode::cnp;
  fields.bth.becn = true;
  if (!emit_headers(context_, qp, fields)) return;
  ++context_.counters.cnps_sent;
  qp.cnp_pending = false;
  qp.next_cnp_ns = context_.now_ns + context_.config.congestion.cnp_interval_ns;
}

void Cnp::on_notification(QueuePair& qp) {
  ++context_.counters.cnps_received;
  if (qp.rate_control != nullptr) qp.rate_control->on_notification(context_.now_ns);
}

}  // namespace faultline::transport
