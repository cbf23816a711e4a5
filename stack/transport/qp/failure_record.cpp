// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/qp/failure_record.hpp"

namespace faultline::transport {

status::FailureRecord record_of(const QpFailure& failure, bool link_up, TimeNs now) {
  status::FailureRecord record;
  record.time_ns = now;
  record.count = 1;
  const bool silent = failure.cause == status::FailureCause::never_answered ||
                      failure.cause == status::FailureCause::stopped_answering;
  record.cause = silent && !link_up ? status::FailureCause::link_down : failure.cause;
  record.remote_va = failure.remote_va;
  record.refused_va = failure.refused_va;
  record.ack_timeout_ns = failure.ack_timeout_ns;
  record.silent_ns = failure.silent_ns;
  record.awaited_va = failure.awaited_va;
  record.awaited_ns = failure.awaited_ns;
  record.awaited_key = failure.awaited_key;
  record.local_va = failure.local_va;
  record.lkey = failure.lkey;
  record.peer_gid = failure.peer.bytes;
  record.qpn = failure.qpn;
  record.peer_qpn = failure.peer_qpn;
  record.psn = failure.psn;
  record.key = failure.rkey;
  record.length_bytes = failure.length_bytes;
  record.refused_key = failure.refused_key;
  record.refused_length_bytes = failure.refused_length_bytes;
  record.unanswered_packets = failure.unanswered_packets;
  record.rx_packets = failure.rx_packets;
  record.status = static_cast<uint8_t>(failure.status);
  record.opcode = static_cast<uint8_t>(failure.opcode);
  record.syndrome = failure.syndrome;
  record.retry_count = failure.retry_count;
  record.rnr_retry = failure.rnr_retry;
  record.retries_used = failure.retries_used;
  record.rnr_retries_used = failure.rnr_retries_used;
  record.qp_type = static_cast<uint8_t>(failure.type);
  record.has_request = failure.has_request;
  record.is_connected = failure.is_connected;
  record.is_loopback = failure.is_loopback;
  record.nak_sent = failure.nak_sent;
  record.link_up = link_up;
  return record;
}

}  // namespace faultline::transport
