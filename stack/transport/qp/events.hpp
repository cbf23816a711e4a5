// SPDX-License-Identifier: BSD-3-Clause
// The events that a core reports to verbs.
#pragma once

#include <cstdint>

#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

class CompletionQueue;
class SharedReceiveQueue;

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

/// Why a QP goes to the error state (a UC QP: to SQE), where neither its program nor its own end asked for
/// it.
struct QpFailure {
  uint32_t qpn = 0;
  bool is_connected = false;  ///< the peer's address and QPN are known
  bool is_loopback = false;   ///< the peer's address is the device's own
  wire::Gid peer;
  uint32_t peer_qpn = 0;
  uint32_t psn = 0;  ///< oldest PSN not acknowledged, or the request's
  CompletionStatus status = CompletionStatus::success;
  bool nak_sent =
      false;  ///< by a request of the peer, which was told so; then `syndrome` counts (IBA 9.7.5.2.8)
  uint8_t syndrome = 0;
};

/// Where a core tells verbs what happened. Called on the owner thread; must not block or call back into the
/// core.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_qp_event(uint32_t qpn, void* user, AsyncEvent event) = 0;
  virtual void on_cq_event(CompletionQueue* cq, AsyncEvent event) = 0;
  /// A completion came that the queue was armed for (CompletionQueue::arm).
  virtual void on_completion(CompletionQueue* cq) { static_cast<void>(cq); }
  virtual void on_srq_event(SharedReceiveQueue* srq, AsyncEvent event) {
    static_cast<void>(srq);
    static_cast<void>(event);
  }
  /// For a log: nothing depends on it.
  virtual void on_qp_failure(const QpFailure& failure) { static_cast<void>(failure); }
  /// Of the port or the whole device.
  virtual void on_device_event(AsyncEvent event) { static_cast<void>(event); }
};

}  // namespace faultline::transport
