// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/context/context.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "stack/transport/context/recorder.hpp"

namespace faultline::transport {

namespace {

CompletionOpcode completion_opcode(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::rdma_write:
    case SendOpcode::rdma_write_with_imm:
      return CompletionOpcode::rdma_write;
    case SendOpcode::rdma_read:
      return CompletionOpcode::rdma_read;
    case SendOpcode::atomic_cmp_and_swp:
      return CompletionOpcode::comp_swap;
    case SendOpcode::atomic_fetch_and_add:
      return CompletionOpcode::fetch_add;
    case SendOpcode::local_inv:
      return CompletionOpcode::local_inv;
    case SendOpcode::bind_mw:
      return CompletionOpcode::bind_mw;
    case SendOpcode::flush:
      return CompletionOpcode::flush;
    case SendOpcode::atomic_write:
      return CompletionOpcode::atomic_write;
    case SendOpcode::made_to_fail:
    case SendOpcode::send:
    case SendOpcode::send_with_imm:
    case SendOpcode::send_with_inv:
      return CompletionOpcode::send;
  }
  return CompletionOpcode::send;
}

}  // namespace

CoreContext::CoreContext(const CoreConfig& core_config, odp::MemoryAccess& memory_access, Port& core_port,
                         EventSink* sink)
    : config(core_config),
      memory(memory_access),
      port(core_port),
      events(sink),
      recorder(core_config.recorder),
      tx(core_port, counters),
      parking(core_config, core_port, counters, timers),
      notices(sink) {}

bool CoreContext::wait_for_pace(QueuePair& qp) {
  if (qp.rate_control->rate(now_ns) == RateControl::kUnlimited) return false;
  ++counters.pacing_waits;
  paces.arm(qp.pacing_timer, qp.pacing.next_ns(), now_ns);
  return true;
}

void CoreContext::note_paced(QueuePair& qp, uint32_t bytes) {
  qp.rate_control->on_sent(bytes, now_ns);
  const uint64_t rate_bytes_per_s = qp.rate_control->rate(now_ns);
  if (rate_bytes_per_s != RateControl::kUnlimited) qp.pacing.on_sent(bytes, rate_bytes_per_s, now_ns);
}

FaultAnswer CoreContext::request_fault(QueuePair& qp, const odp::Target& target, uint64_t va,
                                       uint64_t length_bytes, const FaultWaiter& waiter) {
  // A parked request or a queued response also keeps a peer waiting.
  const bool urgent = waiter.role != FaultRole::requester;
  const odp::FaultRequest request{
      .target = target, .va = va, .length_bytes = length_bytes, .waiter = waiter.pack(), .urgent = urgent};
  probes::fault(qp.qpn, target.key, va, length_bytes, static_cast<uint8_t>(waiter.role));
  if (memory.serve_fault(request)) {
    if (recorder != nullptr) record_fault(*this, qp, request, waiter, FaultAnswer::served);
    return FaultAnswer::served;
  }
  if (memory.request_fault(request)) {
    ++qp.counters.page_waits;
    qp.awaited = {.va = va,
                  .since_ns = now_ns,
                  .key = target.key,
                  .length_bytes = static_cast<uint32_t>(std::min<uint64_t>(length_bytes, UINT32_MAX))};
    if (recorder != nullptr) record_fault(*this, qp, request, waiter, FaultAnswer::queued);
    return FaultAnswer::queued;
  }
  ++counters.fault_queue_full;
  return FaultAnswer::full;
}

void CoreContext::note_overrun(QueuePair& qp, CompletionQueue& cq) {
  ++counters.cq_overruns;
  if (events != nullptr) events->on_cq_event(&cq, AsyncEvent::cq_error);
  if (qp.state_now() == QpState::err) return;
  blame(qp, status::FailureCause::cq_overrun);
  report(qp, CompletionStatus::general);
  qp.lost_completion = true;
  qp.state.store(QpState::err, std::memory_order_relaxed);
  ResponderState& responder = qp.responder;
  responder.closing = true;
  if (!responder.nak_pending) responder.nak_psn = responder.expected_psn;  // PSN of the lost message
  parking.release_parked(qp);
  parking.release_held(qp);
  make_ready(qp);
}

void CoreContext::complete_send(QueuePair& qp, CompletionStatus status) {
  const uint32_t index = qp.send_ring.head();
  const SendWqe& wqe = *qp.send_ring.header_at(index);
  if (status == CompletionStatus::success) ++counters.messages_sent;
  const bool signaled = status != CompletionStatus::success || is_signaled(qp, wqe);
  Completion completion;
  completion.wr_id = wqe.wr_id;
  completion.byte_length = wqe.length_bytes;
  completion.qpn = qp.qpn;
  completion.status = status;
  completion.opcode = completion_opcode(wqe.opcode);
  if (status != CompletionStatus::success) [[unlikely]]
    completion.vendor_error = static_cast<uint32_t>(qp.failure.cause);
  const SendOpcode opcode = wqe.opcode;
  // Retire before pushing the completion: the application may reuse the slot as soon as it polls it.
  qp.send_ring.retire_to(index + 1);
  if (qp.is_counted) [[unlikely]]
    qp.counted->add_send(opcode, status, completion.byte_length);
  if (!signaled) return;
  for (const void* line : qp.posting_reads) __builtin_prefetch(line);
  __builtin_prefetch(&qp.doorbell_rung, 1);
  push(qp, *qp.send_cq, completion);
}

void CoreContext::flush(QueuePair& qp) {
  while (qp.send_ring.head() != qp.send_ring.tail())
    complete_send(qp, CompletionStatus::work_request_flushed);
  flush_receives(qp);
  RequesterState& requester = qp.requester;
  requester.current = requester.started = qp.send_ring.head();
  requester.packet = 0;
  requester.reads_outstanding = 0;
}

namespace {

using status::FailureCause;

QpFailure failure_of(const QueuePair& qp, TimeNs now) {
  QpFailure failure;
  failure.qpn = qp.qpn;
  failure.type = qp.type;
  failure.cause = qp.failure.cause;
  failure.is_connected = qp.protocol() != Protocol::datagram;
  failure.is_loopback = qp.attributes.av.loopback;
  failure.peer = qp.attributes.av.path.destination_gid;
  failure.peer_qpn = qp.attributes.destination_qpn;
  failure.rx_packets = qp.rx_packets;
  failure.refused_key = qp.failure.key;
  failure.refused_length_bytes = qp.failure.length_bytes;
  failure.refused_va = qp.failure.va;
  failure.syndrome = qp.failure.syndrome;
  if (qp.waits_for_page()) {
    failure.awaited_va = qp.awaited.va;
    failure.awaited_key = qp.awaited.key;
    failure.awaited_ns = now - qp.awaited.since_ns;
  }
  return failure;
}

void add_request(QueuePair& qp, TimeNs now, QpFailure& failure) {
  const int32_t unanswered = qp.requester.sent_psn.distance_from(qp.requester.unacked_psn);
  failure.unanswered_packets = static_cast<uint32_t>(std::max(unanswered, 0));
  failure.retry_count = qp.attributes.retry_count;
  failure.rnr_retry = qp.attributes.rnr_retry;
  failure.retries_used = static_cast<uint8_t>(qp.attributes.retry_count - qp.requester.retries_left);
  failure.rnr_retries_used = static_cast<uint8_t>(qp.attributes.rnr_retry - qp.requester.rnr_retries_left);
  if (failure.retries_used != 0 || failure.status == CompletionStatus::retry_exceeded)
    failure.silent_ns = now - qp.recovery.silent_since_ns;
  failure.ack_timeout_ns = qp.recovery.ack_timeout_ns;
  if (qp.send_ring.head() == qp.send_ring.tail()) return;
  SendWqe& wqe = *qp.send_ring.header_at(qp.send_ring.head());
  failure.has_request = true;
  failure.opcode = wqe.opcode;
  failure.length_bytes = wqe.length_bytes;
  failure.rkey = wqe.rkey;
  failure.remote_va = wqe.remote_va;
  if (wqe.sge_count == 0 || (wqe.flags & kInline) != 0) return;
  const Sge& first = *qp.send_ring.sges_of(&wqe);
  failure.lkey = first.lkey;
  failure.local_va = first.va;
}

FailureCause cause_of(const QueuePair& qp, CompletionStatus status) {
  switch (status) {
    case CompletionStatus::local_length:
      return FailureCause::local_length;
    case CompletionStatus::local_qp_operation:
      return FailureCause::local_operation;
    case CompletionStatus::mw_bind:
      return FailureCause::window_bind;
    case CompletionStatus::bad_response:
      return FailureCause::bad_response;
    case CompletionStatus::remote_invalid_request:
      return FailureCause::peer_refused_request;
    case CompletionStatus::remote_access:
      return FailureCause::peer_refused_access;
    case CompletionStatus::remote_operation:
      return FailureCause::peer_failed;
    case CompletionStatus::retry_exceeded:
      if (qp.rx_packets == 0) return FailureCause::never_answered;
      return qp.requester.unacked_psn == qp.first_psn ? FailureCause::acknowledges_nothing
                                                      : FailureCause::stopped_answering;
    case CompletionStatus::rnr_retry_exceeded:
      return FailureCause::receiver_not_ready;
    default:
      return FailureCause::local_page;
  }
}

FailureCause local_cause_of(odp::Violation violation) {
  switch (violation) {
    case odp::Violation::key:
    case odp::Violation::window:
      return FailureCause::local_key;
    case odp::Violation::domain:
      return FailureCause::local_domain;
    case odp::Violation::right:
      return FailureCause::local_right;
    case odp::Violation::range:
      return FailureCause::local_range;
    case odp::Violation::none:
      break;
  }
  return FailureCause::local_page;
}

FailureCause refused_cause_of(odp::Violation violation) {
  switch (violation) {
    case odp::Violation::key:
      return FailureCause::refused_key;
    case odp::Violation::window:
      return FailureCause::refused_window;
    case odp::Violation::domain:
      return FailureCause::refused_domain;
    case odp::Violation::right:
      return FailureCause::refused_right;
    case odp::Violation::range:
      return FailureCause::refused_range;
    case odp::Violation::none:
      break;
  }
  return FailureCause::refused_page;
}

/// Finds the buffer of the oldest send work request that the memory refuses. READs and atomics write to it.
void blame_buffer(odp::MemoryAccess& memory, QueuePair& qp) {
  if (qp.failure.cause != FailureCause::none) return;
  qp.failure.cause = FailureCause::local_page;
  if (qp.send_ring.head() == qp.send_ring.tail()) return;
  SendWqe& wqe = *qp.send_ring.header_at(qp.send_ring.head());
  if ((wqe.flags & kInline) != 0) return;
  const bool writes = wqe.opcode == SendOpcode::rdma_read || wqe.opcode == SendOpcode::atomic_cmp_and_swp ||
                      wqe.opcode == SendOpcode::atomic_fetch_and_add;
  for (const Sge& sge : std::span(qp.send_ring.sges_of(&wqe), wqe.sge_count)) {
    const odp::Target target{sge.lkey, qp.domain, writes ? odp::kLocalWrite : odp::kLocalRead};
    const odp::Violation violation = memory.explain(target, sge.va, sge.length_bytes);
    qp.failure = {local_cause_of(violation), sge.lkey, sge.length_bytes, sge.va, 0};
    if (violation != odp::Violation::none) return;
  }
}

}  // namespace

void CoreContext::blame_access(QueuePair& qp, const odp::Target& target, uint64_t va, uint64_t length_bytes) {
  if (qp.failure.cause != FailureCause::none) return;
  qp.failure = {refused_cause_of(memory.explain(target, va, length_bytes)), target.key,
                static_cast<uint32_t>(std::min<uint64_t>(length_bytes, UINT32_MAX)), va, 0};
}

void CoreContext::blame_page(QueuePair& qp, status::FailureCause cause) {
  if (qp.failure.cause == FailureCause::none)
    qp.failure = {cause, qp.awaited.key, qp.awaited.length_bytes, qp.awaited.va, 0};
}

void CoreContext::report(QueuePair& qp, CompletionStatus status) {
  if (status == CompletionStatus::local_protection) blame_buffer(memory, qp);
  blame(qp, cause_of(qp, status));
  if (events == nullptr) return;
  QpFailure failure = failure_of(qp, now_ns);
  failure.psn = qp.requester.unacked_psn.value();
  failure.status = status;
  add_request(qp, now_ns, failure);
  qp.failure.cause = events->on_qp_failure(failure);
}

void CoreContext::report_nak(QueuePair& qp) {
  if (events == nullptr) return;
  QpFailure failure = failure_of(qp, now_ns);
  failure.psn = qp.responder.nak_psn.value();
  failure.nak_sent = true;
  failure.syndrome = qp.responder.nak_syndrome;
  qp.failure.cause = events->on_qp_failure(failure);
}

void CoreContext::enter_error(QueuePair& qp) {
  const bool lost_completion = std::exchange(qp.lost_completion, false);
  const bool failed_before = qp.state_now() == QpState::err && !lost_completion;
  qp.state.store(QpState::err, std::memory_order_relaxed);
  parking.release_parked(qp);
  parking.release_held(qp);
  RequesterState& requester = qp.requester;
  requester.ack_deadline_ns = requester.rnr_deadline_ns = qp.recovery.probe_deadline_ns = kNever;
  requester.fault_wait = false;
  ++requester.fault_generation;
  ResponderState& responder = qp.responder;
  responder.job_count = 0;
  responder.job_fault_wait = false;
  responder.job_deadline_ns = kNever;
  responder.stall_notification_ns = kNever;
  responder.owes_ready_notification = responder.stall_notification_pending =
      responder.ready_notification_pending = false;
  responder.job_floor = ++responder.job_generation;
  responder.park_floor = ++responder.park_generation;
  responder.ack_pending = responder.nak_pending = responder.sack_pending = false;
  responder.message = InboundMessage::none;
  flush(qp);
  // The QP takes no more receives from its shared queue (IBA 11.6.3.2).
  if (qp.takes_shared_receives() && !failed_before) raise(qp, AsyncEvent::last_wqe_reached);
  if (lost_completion) raise(qp, AsyncEvent::qp_fatal);
}

}  // namespace faultline::transport
