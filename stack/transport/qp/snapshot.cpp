// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/qp/snapshot.hpp"

#include <algorithm>

#include "stack/transport/qp/queue_pair.hpp"

namespace faultline::transport {
namespace {

using status::WaitsFor;

/// Adds what a counter modulo 2^32 has gained since `total` was its value.
void extend(uint64_t& total, uint32_t now) {
  total += static_cast<uint32_t>(now - static_cast<uint32_t>(total));
}

bool takes_receive(SendOpcode opcode) {
  return opcode == SendOpcode::send || opcode == SendOpcode::send_with_imm ||
         opcode == SendOpcode::send_with_inv || opcode == SendOpcode::rdma_write_with_imm;
}

/// `qp` has a send work request that is not sent.
bool waits_for_credit(const QueuePair& qp) {
  const RequesterState& requester = qp.requester;
  return requester.credit_limited && requester.last_ssn >= requester.limit_ssn &&
         takes_receive(qp.send_ring.header_at(requester.current)->opcode);
}

WaitsFor wait_of(QueuePair& qp, int32_t window_packets, TimeNs now) {
  const ResponderState& responder = qp.responder;
  if (responder.parked_head != nullptr || responder.job_fault_wait) return WaitsFor::page;
  return requests_wait_of(qp, window_packets, now);
}

TimeNs wait_end_of(const QueuePair& qp, WaitsFor what) {
  const TimeNs end = what == WaitsFor::receiver || what == WaitsFor::peer_page ? qp.requester.rnr_deadline_ns
                     : what == WaitsFor::pace                                  ? qp.pacing.next_ns()
                     : what == WaitsFor::nothing || what == WaitsFor::page     ? kNever
                                                                               : qp.requester.ack_deadline_ns;
  return end == kNever ? 0 : end;
}

}  // namespace

int32_t window_packets_of(const QueuePair& qp, const CoreConfig& config) {
  return static_cast<int32_t>(
      std::min(config.window_packets - qp.requester.window_cut_packets, whole_window_packets_of(qp, config)));
}

uint32_t whole_window_packets_of(const QueuePair& qp, const CoreConfig& config) {
  if (qp.rate_control == nullptr) return config.window_packets;
  return std::min(config.window_packets, qp.rate_control->most_in_flight_packets());
}

WaitsFor requests_wait_of(QueuePair& qp, int32_t window_packets, TimeNs now) {
  const RequesterState& requester = qp.requester;
  if (requester.fault_wait) return WaitsFor::page;
  if (qp.send_ring.head() == qp.send_ring.tail()) return WaitsFor::nothing;
  if (requester.rnr_deadline_ns != kNever)
    return requester.rnr_for_page ? WaitsFor::peer_page : WaitsFor::receiver;
  if (requester.current == qp.send_ring.tail()) return WaitsFor::answer;
  if (qp.rate_control != nullptr && qp.pacing.next_ns() > now) return WaitsFor::pace;
  if (qp.protocol() == Protocol::datagram) return WaitsFor::turn;
  if (qp.send_psn().distance_from(requester.unacked_psn) >= window_packets) return WaitsFor::window;
  return qp.awaits_answers() && waits_for_credit(qp) ? WaitsFor::credit : WaitsFor::turn;
}

void count_completed_sends(QueuePair& qp) {
  const uint32_t head = qp.send_ring.head();
  qp.counters.sends_completed += head - qp.completed_before;
  qp.completed_before = head;
}

QpSnapshot snapshot_of(QueuePair& qp, const CoreConfig& config, TimeNs now) {
  extend(qp.counters.tx_packets, qp.tx_packets);
  extend(qp.counters.rx_packets, qp.rx_packets);
  count_completed_sends(qp);
  const int32_t window_packets = window_packets_of(qp, config);
  const QpAttributes& attributes = qp.attributes;
  const bool connected = qp.protocol() != Protocol::datagram;
  status::QpLive live;
  live.updated_ns = now;
  live.round_trip_ns = qp.recovery.round_trip.smoothed_ns();
  live.rate_bytes_per_s = qp.rate_control != nullptr ? qp.rate_control->rate(now) : 0;
  live.waits_for = wait_of(qp, window_packets, now);
  live.wait_ends_ns = wait_end_of(qp, live.waits_for);
  live.counters = qp.counters;
  if (connected) {
    std::ranges::copy(attributes.av.path.destination_gid.bytes, live.peer_gid.begin());
    live.peer_qpn = attributes.destination_qpn;
    live.unacked_psn = qp.requester.unacked_psn.value();
    live.expected_psn = qp.responder.expected_psn.value();
    live.in_flight_packets =
        static_cast<uint32_t>(std::max(qp.requester.sent_psn.distance_from(qp.requester.unacked_psn), 0));
    live.window_packets = static_cast<uint32_t>(std::max(window_packets, 0));
  }
  live.next_psn = qp.send_psn().value();
  live.mtu_bytes = qp.mtu_bytes;
  live.sends_posted = qp.send_ring.tail() - qp.send_ring.head();
  live.receives_posted = qp.receive_ring.tail() - qp.receive_ring.head();
  live.parked_packets = qp.responder.parked;
  live.state = static_cast<uint8_t>(qp.state_now());
  live.retry_count = attributes.retry_count;
  // Set in the transition to RTS.
  const bool may_retry =
      qp.state_now() != QpState::reset && qp.state_now() != QpState::init && qp.state_now() != QpState::rtr;
  live.retries_left = may_retry ? qp.requester.retries_left : attributes.retry_count;
  live.rnr_retry = attributes.rnr_retry;
  live.rnr_retries_left = may_retry ? qp.requester.rnr_retries_left : attributes.rnr_retry;
  live.timeout = attributes.timeout;
  live.path_mtu = static_cast<uint8_t>(attributes.path_mtu);
  return {qp.status_row, live};
}

}  // namespace faultline::transport
