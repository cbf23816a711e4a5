// SPDX-License-Identifier: BSD-3-Clause
// The events that a core reports to verbs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stack/base/time.hpp"
#include "stack/status/failure.hpp"
#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

class CompletionQueue;
class SharedReceiveQueue;
struct RxFrame;

/// Asynchronous events a core raises for verbs (ibv_event_type's values).
enum class AsyncEvent : uint8_t {
  cq_error = 0,
  qp_fatal = 1,
  qp_request_error = 2,
  qp_access_error = 3,
  communication_established = 4,
  sq_drained = 5,
  path_migrated = 6,
  path_migration_error = 7,
  device_fatal = 8,
  port_active = 9,
  port_error = 10,
  srq_error = 14,
  srq_limit_reached = 15,
  last_wqe_reached = 16
};

/// Reason for a QP's transition to the error state (a UC QP: to SQE) that neither the program nor the QP's
/// destruction requested.
struct QpFailure {
  uint32_t qpn = 0;
  QpType type = QpType::rc;
  status::FailureCause cause = status::FailureCause::none;
  bool is_connected = false;  ///< the peer's address and QPN are known
  bool is_loopback = false;   ///< the peer's address is the device's own
  wire::Gid peer;
  uint32_t peer_qpn = 0;
  uint32_t psn = 0;  ///< oldest PSN not acknowledged, or the request's
  CompletionStatus status = CompletionStatus::success;
  bool nak_sent = false;    ///< caused by a request of the peer, and a NAK was sent
  uint8_t syndrome = 0;     ///< of that NAK, or of the NAK that the peer sent (IBA 9.7.5.2.8); 0: none
  uint32_t rx_packets = 0;  ///< that the QP has received, modulo 2^32
  /// The access that was refused, here (`nak_sent`) or of a local buffer; 0: none.
  uint32_t refused_key = 0;
  uint32_t refused_length_bytes = 0;
  uint64_t refused_va = 0;
  /// The page for which the QP waits; without meaning if `awaited_ns` is 0.
  uint64_t awaited_va = 0;
  TimeNs awaited_ns = 0;  ///< duration of the wait
  uint32_t awaited_key = 0;

  // The requester's state; without meaning if `nak_sent`.
  /// A send work request is outstanding: the oldest one's opcode, length, remote address and key follow.
  bool has_request = false;
  SendOpcode opcode = SendOpcode::send;
  uint32_t length_bytes = 0;
  uint32_t rkey = 0;
  uint64_t remote_va = 0;
  uint32_t lkey = 0;  ///< of its first buffer; 0: none
  uint64_t local_va = 0;
  uint32_t unanswered_packets = 0;  ///< sent, and not acknowledged
  uint8_t retry_count = 0;          ///< attributes of ibv_modify_qp(3)
  uint8_t rnr_retry = 0;
  uint8_t retries_used = 0;  ///< of retry_count, since the last answer
  uint8_t rnr_retries_used = 0;
  TimeNs silent_ns = 0;       ///< since the peer's last answer; 0: no ACK timeout has expired
  TimeNs ack_timeout_ns = 0;  ///< 0: none
};

/// Receiver of a core's events. Called on the owner thread; must not block or call back into the core.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_qp_event(uint32_t qpn, void* user, AsyncEvent event) = 0;
  virtual void on_cq_event(CompletionQueue* cq, AsyncEvent event) = 0;
  /// A completion arrived for which the queue was armed (CompletionQueue::arm).
  virtual void on_completion(CompletionQueue* cq) { static_cast<void>(cq); }
  virtual void on_srq_event(SharedReceiveQueue* srq, AsyncEvent event) {
    static_cast<void>(srq);
    static_cast<void>(event);
  }
  /// For messages to people. Returns the cause, refined by what the receiver knows of the port.
  virtual status::FailureCause on_qp_failure(const QpFailure& failure) { return failure.cause; }
  /// The core has dropped a received frame. `counter` is the index of the counter that counted it, in
  /// flatten()'s order. Only with CoreConfig::reports_drops.
  virtual void on_frame_dropped(const RxFrame& frame, size_t counter) {
    static_cast<void>(frame);
    static_cast<void>(counter);
  }
  /// Event of the port or the whole device.
  virtual void on_device_event(AsyncEvent event) { static_cast<void>(event); }
};

}  // namespace faultline::transport
