// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/qp/context.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

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
    case SendOpcode::send:
    case SendOpcode::send_with_imm:
    case SendOpcode::send_with_inv:
      return CompletionOpcode::send;
  }
  return CompletionOpcode::send;
}

wire::Service service_of(QpType type) {
  switch (type) {
    case QpType::rc:
      return wire::Service::rc;
    case QpType::uc:
      return wire::Service::uc;
    case QpType::ud:
      return wire::Service::ud;
    case QpType::xrc_send:
    case QpType::xrc_recv:
      return wire::Service::xrc;
  }
  return wire::Service::rc;
}

}  // namespace

QueuePair::QueuePair(uint32_t number, const QpInit& init, std::pmr::memory_resource* memory)
    : qpn(number),
      type(init.type),
      service(service_of(init.type)),
      signal_all(init.signal_all),
      blocks_own_multicast(init.blocks_own_multicast),
      domain(init.domain),
      progress_mask(std::bit_ceil(std::max(init.max_send_wr, 1U)) - 1),
      send_cq(init.send_cq),
      receive_cq(init.receive_cq),
      posting_reads(init.posting_reads),
      send_ring(init.max_send_wr, init.max_send_sge, init.max_inline_bytes, init.type == QpType::ud,
                init.ring_memory != nullptr ? init.ring_memory : memory),
      receive_ring(init.max_receive_wr, init.max_receive_sge, 0, false,
                   init.ring_memory != nullptr ? init.ring_memory : memory),
      progress_storage(progress_mask + 1, memory),
      srq(init.srq),
      xrc_domain(init.xrc_domain),
      shared_sges(takes_shared_receives() ? kMaxSharedSges : 0),
      user(init.user) {
  progress = progress_storage.data();
  timer.qp = pacing_timer.qp = this;
}

CoreContext::CoreContext(const CoreConfig& core_config, odp::MemoryAccess& memory_access, Port& core_port,
                         EventSink* sink)
    : config(core_config),
      memory(memory_access),
      port(core_port),
      events(sink),
      tx(core_port, counters),
      park_pool_(core_config.park_packets_total) {
  for (ParkedFrame& parked : park_pool_) {
    parked.next = park_free_;
    park_free_ = &parked;
  }
}

void CoreContext::enlist(QueuePair& qp) {
  qp.ready = true;
  qp.next_ready = nullptr;
  if (ready_tail_ == nullptr)
    ready_head_ = &qp;
  else
    ready_tail_->next_ready = &qp;
  ready_tail_ = &qp;
  ++ready_count_;
}

QueuePair* CoreContext::pop_ready() {
  QueuePair* qp = ready_head_;
  if (qp == nullptr) return nullptr;
  ready_head_ = qp->next_ready;
  lookahead.advance(ready_head_);
  if (ready_head_ == nullptr) ready_tail_ = nullptr;
  qp->ready = false;
  --ready_count_;
  return qp;
}

void CoreContext::remove_ready(QueuePair& qp) {
  if (!qp.ready) return;
  lookahead.forget();
  QueuePair* previous = nullptr;
  QueuePair* at = ready_head_;
  while (at != &qp) {
    previous = at;
    at = at->next_ready;
  }
  (previous == nullptr ? ready_head_ : previous->next_ready) = qp.next_ready;
  if (ready_tail_ == &qp) ready_tail_ = previous;
  qp.ready = false;
  --ready_count_;
}

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

FaultAnswer CoreContext::request_fault(const odp::Target& target, uint64_t va, uint64_t length_bytes,
                                       const FaultWaiter& waiter) {
  // A parked request or a queued response also keeps a peer waiting.
  const bool urgent = waiter.role != FaultRole::requester;
  const odp::FaultRequest request{
      .target = target, .va = va, .length_bytes = length_bytes, .waiter = waiter.pack(), .urgent = urgent};
  if (memory.serve_fault(request)) return FaultAnswer::served;
  if (memory.request_fault(request)) return FaultAnswer::queued;
  ++counters.fault_queue_full;
  return FaultAnswer::full;
}

bool CoreContext::park(QueuePair& qp, const RxFrame& frame) {
  ResponderState& responder = qp.responder;
  if (park_free_ == nullptr || responder.parked >= config.park_packets_per_qp) return false;
  // The last quarter of the pool is reserved for the first parked packet of each QP, the one that waits for
  // the page itself.
  if (responder.parked_head != nullptr &&
      parked_ >= config.park_packets_total - config.park_packets_total / 4)
    return false;
  ++parked_;
  ParkedFrame* parked = park_free_;
  park_free_ = parked->next;
  parked->frame = frame;
  parked->next = nullptr;
  if (responder.parked_tail == nullptr)
    responder.parked_head = parked;
  else
    responder.parked_tail->next = parked;
  responder.parked_tail = parked;
  ++responder.parked;
  ++counters.packets_parked;
  return true;
}

void CoreContext::unpark_head(QueuePair& qp) {
  ResponderState& responder = qp.responder;
  ParkedFrame* head = responder.parked_head;
  assert(head != nullptr);
  --parked_;
  responder.parked_head = head->next;
  if (responder.parked_head == nullptr) responder.parked_tail = nullptr;
  --responder.parked;
  head->next = park_free_;
  park_free_ = head;
}

void CoreContext::release_parked(QueuePair& qp) {
  ResponderState& responder = qp.responder;
  while (responder.parked_head != nullptr) {
    RxFrame frame = responder.parked_head->frame;
    unpark_head(qp);
    count(DropReason::parked_flushed);
    port.release({&frame, 1});
  }
  responder.parked_retry = false;
  responder.park_deadline_ns = kNever;
  responder.dropped_behind = false;
  ++responder.park_generation;
}

bool CoreContext::hold(QueuePair& qp, wire::Psn psn, const RxFrame& frame) {
  ResponderState& responder = qp.responder;
  if (park_free_ == nullptr || responder.held >= config.reorder_packets_per_qp) return false;
  ParkedFrame** link = &responder.held_head;
  // Packets mostly arrive in order: append after the last one.
  if (responder.held_tail != nullptr && responder.held_tail->psn < psn) link = &responder.held_tail->next;
  while (*link != nullptr && (*link)->psn < psn) link = &(*link)->next;
  if (*link != nullptr && (*link)->psn == psn) return false;
  ParkedFrame* held = park_free_;
  park_free_ = held->next;
  held->frame = frame;
  held->psn = psn;
  held->next = *link;
  *link = held;
  if (held->next == nullptr) responder.held_tail = held;
  if (responder.held++ == 0) {
    responder.held_deadline_ns = now_ns + config.reorder_deadline_ns;
    arm(qp, responder.held_deadline_ns);
  }
  ++counters.packets_held;
  return true;
}

RxFrame CoreContext::take_held_head(QueuePair& qp) {
  ResponderState& responder = qp.responder;
  ParkedFrame* head = responder.held_head;
  assert(head != nullptr);
  responder.held_head = head->next;
  --responder.held;
  if (responder.held_head == nullptr) {
    responder.held_tail = nullptr;
    responder.held_deadline_ns = kNever;
  } else {
    // One gap is closed: restart the timer for the next.
    responder.held_deadline_ns = now_ns + config.reorder_deadline_ns;
  }
  head->next = park_free_;
  park_free_ = head;
  return head->frame;
}

void CoreContext::release_held(QueuePair& qp) {
  while (qp.responder.held_head != nullptr) {
    RxFrame frame = take_held_head(qp);
    port.release({&frame, 1});
  }
}

void CoreContext::note_overrun(QueuePair& qp, CompletionQueue& cq) {
  ++counters.cq_overruns;
  if (events != nullptr) events->on_cq_event(&cq, AsyncEvent::cq_error);
  if (qp.state_now() == QpState::err) return;
  qp.lost_completion = true;
  qp.state.store(QpState::err, std::memory_order_relaxed);
  ResponderState& responder = qp.responder;
  responder.closing = true;
  if (!responder.nak_pending) responder.nak_psn = responder.expected_psn;  // PSN of the lost message
  release_parked(qp);
  release_held(qp);
  make_ready(qp);
}

void CoreContext::note_pushed(CompletionQueue& cq, const Completion& completion) {
  size_t at = 0;
  while (at < pushed_count_ && pushed_[at].cq != &cq) ++at;
  if (at == pushed_.size()) {
    ask_for_notices();
    at = 0;
  }
  if (at == pushed_count_) pushed_[pushed_count_++] = {&cq, {}};
  cq.note(completion, pushed_[at].what);
  if (defers_notices_ && !cq.seems_armed()) return;
  const PushedTo last = pushed_[at];
  pushed_[at] = pushed_[--pushed_count_];
  give_notice(*last.cq, last.what);
}

void CoreContext::ask_for_notices() {
  for (; pushed_count_ != 0; --pushed_count_)
    give_notice(*pushed_[pushed_count_ - 1].cq, pushed_[pushed_count_ - 1].what);
}

void CoreContext::give_notice(CompletionQueue& cq, const CompletionQueue::Pushed& pushed) {
  switch (cq.notice(pushed, now_ns)) {
    case Notice::none:
      return;
    case Notice::now:
      events->on_completion(&cq);
      return;
    case Notice::later:
      if (cq.listed.exchange(true, std::memory_order_acq_rel)) return;
      cq.next_listed = moderated_;
      moderated_ = &cq;
      return;
  }
}

void CoreContext::end_moderations() {
  for (CompletionQueue** link = &moderated_; *link != nullptr;) {
    CompletionQueue& cq = **link;
    if (cq.notice_deadline() > now_ns) {
      link = &cq.next_listed;
      continue;
    }
    *link = cq.next_listed;
    cq.listed.store(false, std::memory_order_release);
    if (cq.end_moderation()) events->on_completion(&cq);
  }
}

TimeNs CoreContext::next_moderation() const {
  TimeNs earliest = kNever;
  for (const CompletionQueue* cq = moderated_; cq != nullptr; cq = cq->next_listed)
    earliest = std::min(earliest, cq->notice_deadline());
  return earliest;
}

void CoreContext::forget(const CompletionQueue& gone) {
  CompletionQueue** link = &moderated_;
  while (*link != nullptr && *link != &gone) link = &(*link)->next_listed;
  if (*link != nullptr) *link = gone.next_listed;
}

void CoreContext::complete_send(QueuePair& qp, CompletionStatus status) {
  const uint32_t index = qp.send_ring.head();
  const SendWqe& wqe = *qp.send_ring.header_at(index);
  if (status == CompletionStatus::success) ++counters.messages_sent;
  const bool signaled = status != CompletionStatus::success || tells(qp, wqe);
  Completion completion;
  completion.wr_id = wqe.wr_id;
  completion.byte_length = wqe.length_bytes;
  completion.qpn = qp.qpn;
  completion.status = status;
  completion.opcode = completion_opcode(wqe.opcode);
  // Retire before pushing the completion: the application may reuse the slot as soon as it polls it.
  qp.send_ring.retire_to(index + 1);
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

QpFailure failure_of(const QueuePair& qp) {
  QpFailure failure;
  failure.qpn = qp.qpn;
  failure.is_connected = qp.protocol() != Protocol::datagram;
  failure.is_loopback = qp.attributes.av.loopback;
  failure.peer = qp.attributes.av.path.destination_gid;
  failure.peer_qpn = qp.attributes.destination_qpn;
  return failure;
}

}  // namespace

void CoreContext::report(const QueuePair& qp, CompletionStatus status) {
  if (events == nullptr) return;
  QpFailure failure = failure_of(qp);
  failure.psn = qp.requester.unacked_psn.value();
  failure.status = status;
  events->on_qp_failure(failure);
}

void CoreContext::report_nak(const QueuePair& qp) {
  if (events == nullptr) return;
  QpFailure failure = failure_of(qp);
  failure.psn = qp.responder.nak_psn.value();
  failure.nak_sent = true;
  failure.syndrome = qp.responder.nak_syndrome;
  events->on_qp_failure(failure);
}

void CoreContext::enter_error(QueuePair& qp) {
  const bool lost_completion = std::exchange(qp.lost_completion, false);
  const bool failed_before = qp.state_now() == QpState::err && !lost_completion;
  qp.state.store(QpState::err, std::memory_order_relaxed);
  release_parked(qp);
  release_held(qp);
  RequesterState& requester = qp.requester;
  requester.ack_deadline_ns = requester.rnr_deadline_ns = qp.recovery.probe_deadline_ns = kNever;
  requester.fault_wait = false;
  ++requester.fault_generation;
  ResponderState& responder = qp.responder;
  responder.job_count = 0;
  responder.job_fault_wait = false;
  responder.job_deadline_ns = kNever;
  responder.stall_notification_ns = kNever;
  responder.stall_told = responder.stall_notification_pending = responder.ready_notification_pending = false;
  responder.job_floor = ++responder.job_generation;
  responder.park_floor = ++responder.park_generation;
  responder.ack_pending = responder.nak_pending = responder.sack_pending = false;
  responder.message = InboundMessage::none;
  flush(qp);
  // The QP takes no more receives from its shared queue (IBA 11.6.3.2).
  if (qp.takes_shared_receives() && !failed_before) raise(qp, AsyncEvent::last_wqe_reached);
  if (lost_completion) raise(qp, AsyncEvent::qp_fatal);
}

namespace {

/// Calls `copy(sge, va, bytes, done_bytes)` for each piece of [offset, offset + length) of the list.
template <typename Copy>
odp::Outcome walk(std::span<const Sge> sges, uint32_t offset, uint32_t length, SgeSpan& stop, Copy copy) {
  uint32_t done = 0;
  for (uint32_t index = 0; index < sges.size() && done < length; ++index) {
    const Sge& sge = sges[index];
    if (offset >= sge.length_bytes) {
      offset -= sge.length_bytes;
      continue;
    }
    const uint32_t piece = std::min(sge.length_bytes - offset, length - done);
    const odp::Outcome outcome = copy(sge, sge.va + offset, piece, done);
    if (outcome != odp::Outcome::done) {
      stop = {index, sge.va + offset, sge.length_bytes - offset};
      return outcome;
    }
    done += piece;
    offset = 0;
  }
  return done == length ? odp::Outcome::done : odp::Outcome::violation;
}

}  // namespace

odp::Outcome gather_list(odp::MemoryAccess& memory, odp::ProtectionDomain domain, std::span<const Sge> sges,
                         uint32_t offset, std::span<uint8_t> to, SgeSpan& stop, uint32_t* crc) {
  return walk(sges, offset, static_cast<uint32_t>(to.size()), stop,
              [&](const Sge& sge, uint64_t va, uint32_t bytes, uint32_t done) {
                const odp::Target target{sge.lkey, domain, odp::kLocalRead};
                const std::span<uint8_t> piece = to.subspan(done, bytes);
                return crc == nullptr ? memory.read(target, va, piece)
                                      : memory.read_with_crc(target, va, piece, *crc);
              });
}

odp::Outcome scatter_list(odp::MemoryAccess& memory, odp::ProtectionDomain domain, std::span<const Sge> sges,
                          uint32_t offset, std::span<const uint8_t> from, SgeSpan& stop) {
  return walk(sges, offset, static_cast<uint32_t>(from.size()), stop,
              [&](const Sge& sge, uint64_t va, uint32_t bytes, uint32_t done) {
                return memory.write({sge.lkey, domain, odp::kLocalWrite}, va, from.subspan(done, bytes));
              });
}

}  // namespace faultline::transport
