// SPDX-License-Identifier: BSD-3-Clause
// The requester's receiving half: acknowledgements, NAKs, READ responses and stall notifications.
#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "stack/transport/rc/requester.hpp"
#include "stack/wire/packet/credits.hpp"

namespace faultline::transport {

namespace {

CompletionStatus status_of(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::invalid_request:
    case wire::NakCode::invalid_rd_request:
      return CompletionStatus::remote_invalid_request;
    case wire::NakCode::remote_access_error:
      return CompletionStatus::remote_access;
    case wire::NakCode::remote_operational_error:
      return CompletionStatus::remote_operation;
    case wire::NakCode::psn_sequence_error:
      break;
  }
  return CompletionStatus::bad_response;
}

/// Bound on the age of a late response: the number of packets that can be in flight.
constexpr int32_t kFarthestBehind = 1 << 16;

bool is_atomic(SendOpcode opcode) {
  return opcode == SendOpcode::atomic_cmp_and_swp || opcode == SendOpcode::atomic_fetch_and_add;
}

/// True if the response has the kind and length that the request expects (siw's CVE-2026-23242: longer than
/// requested).
bool answer_fits(const SendWqe& wqe, const wire::Packet& packet, uint32_t read_bytes) {
  if (is_atomic(wqe.opcode)) return packet.info->operation == wire::Operation::atomic_acknowledge;
  if (packet.info->operation != wire::Operation::read_response) return false;
  return packet.payload_bytes == (wqe.opcode == SendOpcode::rdma_read ? read_bytes : 0);
}

bool is_before(uint32_t ring_index, uint32_t other) {
  return static_cast<int32_t>(ring_index - other) < 0;
}

}  // namespace

uint64_t rnr_timer_ns(uint8_t code) {
  // IBA table 45, in units of 10 us.
  static constexpr std::array<uint32_t, 32> kTimer10us = {
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return uint64_t{kTimer10us[code & wire::kAethValueMask]} * 10'000;
}

void Requester::complete_head(QueuePair& qp) {
  const uint32_t head = qp.send_ring.head();
  if (qp.progress_at(head).signaled != 0 || qp.is_counted)
    return context_.complete_send(qp, CompletionStatus::success);
  // Does not read the WQE: with many QPs it has left the cache since it was sent.
  ++context_.counters.messages_sent;
  qp.send_ring.retire_to(head + 1);
}

void Requester::catch_up(QueuePair& qp) {
  RequesterState& state = qp.requester;
  const uint32_t head = qp.send_ring.head();
  if (is_before(state.current, head)) {
    state.current = head;
    state.packet = 0;
    forget_fault(qp);
  }
  if (state.current != head || head == state.started) return;
  const int32_t acknowledged = state.unacked_psn.distance_from(qp.progress_at(head).first_psn);
  if (acknowledged > static_cast<int32_t>(state.packet)) {
    state.packet = static_cast<uint32_t>(acknowledged);
    forget_fault(qp);
  }
}

/// Clears the fault state as the send position moves, since it describes the previous packet.
void Requester::forget_fault(QueuePair& qp) {
  RequesterState& state = qp.requester;
  state.fault_wait = state.fault_failed = false;
  ++state.fault_generation;
}

/// Updates the requester's state after the window has moved on from `from`.
[[gnu::always_inline]] inline void Requester::note_progress(QueuePair& qp, wire::Psn from) {
  RequesterState& state = qp.requester;
  RecoveryState& recovery = qp.recovery;
  state.retries_left = qp.attributes.retry_count;
  state.rnr_retries_left = qp.attributes.rnr_retry;
  state.gap_reported = false;
  if (state.window_cut_packets != 0) [[unlikely]]
    widen_window(qp, from);
  complete_local(qp);
  catch_up(qp);
  // Skips the update if all timers would be set to the same values, as for several packets in one turn.
  const bool quiet = recovery.is_quiet_before(state.unacked_psn);
  const bool timers_stand = quiet && state.ack_deadline_ns == context_.now_ns + recovery.ack_timeout_ns;
  if (!quiet) on_window_moved(qp, from);
  const bool awaits =
      state.unacked_psn != state.sent_psn && !state.fault_wait && state.rnr_deadline_ns == kNever;
  if (!awaits || !timers_stand) {
    state.ack_deadline_ns = recovery.probe_deadline_ns = kNever;
    if (awaits) arm_ack_timer(qp);
  }
  // If nothing more is posted, a turn would have nothing to do except to check for SQD drained.
  if (state.current != qp.send_ring.tail() || qp.state_now() != QpState::rts) context_.make_ready(qp);
}

bool Requester::acknowledge_before(QueuePair& qp, wire::Psn psn) {
  RequesterState& state = qp.requester;
  bool whole = true;
  const uint32_t first = qp.send_ring.head();
  while (qp.send_ring.head() != state.started) {
    const uint32_t head = qp.send_ring.head();
    const SendProgress& progress = qp.progress_at(head);
    if (progress.packets != 0 && progress.first_psn >= psn) break;
    if (progress.answered != 0) {
      // Only its response acknowledges it: an acknowledgement past a READ means that responses were lost (IBA
      // 9.7.5.1.1).
      const wire::Psn due = std::max(progress.first_psn, state.unacked_psn);
      whole = psn <= due;
      psn = std::min(psn, due);
      break;
    }
    if (progress.first_psn.plus(progress.packets) > psn) break;
    // The program mostly posts another message for each one that completes.
    qp.send_ring.prefetch_slot_to_post(head - first);
    complete_head(qp);
  }
  if (psn > state.unacked_psn) {
    const wire::Psn from = state.unacked_psn;
    state.unacked_psn = psn;
    note_progress(qp, from);
  }
  return whole;
}

/// Reads the credits of a positive AETH. Credits are never revoked: of reordered responses the largest limit
/// counts.
void Requester::take_credits(QueuePair& qp, const wire::Aeth& aeth) {
  RequesterState& state = qp.requester;
  if (!context_.config.credits || (aeth.syndrome & wire::kAethKindMask) != wire::kAethAck) return;
  const uint8_t code = aeth.syndrome & wire::kAethValueMask;
  const wire::Psn limit(aeth.msn + (code == wire::kAethCreditsInvalid ? 0 : wire::kCreditsOfCode[code]));
  const bool limited = code != wire::kAethCreditsInvalid;
  if (limited && state.credit_limited && limit <= state.limit_ssn) return;
  state.credit_limited = limited;
  state.limit_ssn = limit;
  if (state.current != qp.send_ring.tail()) context_.make_ready(qp);
}

void Requester::on_acknowledge(QueuePair& qp, const wire::Packet& packet) {
  RequesterState& state = qp.requester;
  const wire::Psn psn = packet.bth.psn;
  const wire::Aeth aeth = packet.aeth();
  const uint8_t kind = aeth.syndrome & wire::kAethKindMask;
  // An acknowledgement without new PSNs may carry new credits.
  if (psn.next() >= state.unacked_psn && psn < state.sent_psn) take_credits(qp, aeth);
  if (psn < state.unacked_psn && state.unacked_psn.distance_from(psn) < kFarthestBehind &&
      kind == wire::kAethRnrNak && state.reads_outstanding != 0 && state.unacked_psn < state.sent_psn) {
    // The responder dropped a duplicate READ and the responses queued after it: request them again.
    ++context_.counters.rnr_naks_received;
    ++qp.counters.rnr_naks_received;
    return on_rnr_nak(qp, state.unacked_psn, aeth.syndrome & wire::kAethValueMask, packet.bth.page_fault);
  }
  const bool is_stall_notification =
      (packet.bth.page_fault || packet.bth.page_ready) && kind == wire::kAethAck;
  if (is_stall_notification && psn.next() == state.unacked_psn)
    return on_stall_notification(qp, packet.bth.page_ready);
  if (psn < state.unacked_psn || psn >= state.sent_psn) return context_.count(DropReason::stale_ack);
  switch (kind) {
    case wire::kAethAck:
      if (!acknowledge_before(qp, psn.next()))
        on_response_gap(qp);
      else if (is_stall_notification)
        on_stall_notification(qp, packet.bth.page_ready);
      return;
    case wire::kAethRnrNak:
      ++context_.counters.rnr_naks_received;
      ++qp.counters.rnr_naks_received;
      // An incomplete READ before it is requested again after the same wait. A page fault at the peer uses no
      // retry: the page arrives as surely as an acknowledgement.
      if (acknowledge_before(qp, psn) && !packet.bth.page_fault && !count_rnr_retry(qp)) {
        ++context_.counters.rnr_retries_exceeded;
        fail(qp, CompletionStatus::rnr_retry_exceeded);
      } else
        on_rnr_nak(qp, state.unacked_psn, aeth.syndrome & wire::kAethValueMask, packet.bth.page_fault);
      return;
    case wire::kAethNak: {
      ++context_.counters.naks_received;
      const auto code = static_cast<wire::NakCode>(aeth.syndrome & wire::kAethValueMask);
      if (code == wire::NakCode::psn_sequence_error) {
        ++context_.counters.sequence_naks_received;
        ++qp.counters.sequence_naks_received;
      }
      const bool whole = acknowledge_before(qp, psn);
      // After any other NAK the peer's QP is in error. A READ with missing responses never gets them, so it
      // fails here rather than by timeouts.
      if (code != wire::NakCode::psn_sequence_error) {
        qp.failure.syndrome = aeth.syndrome;
        fail(qp, status_of(code));
      } else if (whole)
        on_sequence_nak(qp, psn);
      else
        on_response_gap(qp);
      return;
    }
    default:
      context_.count(DropReason::unexpected_response);
  }
}

/// Counts an RNR retry; false if none is left. A NAK that repeats during its wait counts once.
bool Requester::count_rnr_retry(QueuePair& qp) {
  RequesterState& state = qp.requester;
  constexpr uint8_t kForEver = 7;
  if (qp.attributes.rnr_retry == kForEver || state.rnr_deadline_ns != kNever) return true;
  if (state.rnr_retries_left == 0) return false;
  --state.rnr_retries_left;
  return true;
}

/// Handles a stall notification. The peer holds the oldest packet and waits for its page, or the page for
/// which it sent an RNR NAK is resident.
void Requester::on_stall_notification(QueuePair& qp, bool ready) {
  RequesterState& state = qp.requester;
  if (state.rnr_deadline_ns != kNever) {
    if (!ready || !state.rnr_for_page) return;
    state.rnr_deadline_ns = kNever;
    return context_.make_ready(qp);
  }
  if (ready || state.ack_deadline_ns == kNever) return;
  // Twice the peer's repeat interval and more. The peer holds the packet, so it needs no retransmission and
  // uses no retry.
  constexpr uint64_t kPatienceNs = 5'000'000;
  state.retries_left = qp.attributes.retry_count;
  qp.recovery.probes = 0;
  qp.recovery.notified_ns = context_.now_ns;
  state.ack_deadline_ns = std::max(state.ack_deadline_ns, context_.now_ns + kStallSilenceNs);
  if (context_.config.early_probe) qp.recovery.probe_deadline_ns = context_.now_ns + kPatienceNs;
  context_.arm(qp, next_deadline(qp));
}

void Requester::on_rnr_nak(QueuePair& qp, wire::Psn psn, uint8_t timer_code, bool for_page) {
  RequesterState& state = qp.requester;
  if (state.rnr_deadline_ns != kNever) return;
  state.rnr_for_page = for_page;
  // An RNR NAK is a response, so the count of missing responses restarts. Otherwise a long page fault at the
  // peer and a lossy link would together exhaust the retry count.
  state.retries_left = qp.attributes.retry_count;
  qp.recovery.received.clear();  // a later selective acknowledgement reports what has arrived
  go_back_to(qp, psn);
  state.gap_reported = false;
  state.ack_deadline_ns = qp.recovery.probe_deadline_ns = kNever;
  state.rnr_deadline_ns = context_.now_ns + rnr_timer_ns(timer_code);
  context_.arm(qp, state.rnr_deadline_ns);
}

/// Places the data of a response that missed, while its pages are served at once. Returns true if it is
/// placed.
bool Requester::place_when_served(const QueuePair& qp, std::span<const Sge> sges, uint32_t offset,
                                  std::span<const uint8_t> data, SgeSpan& stop) {
  for (unsigned tries = 0; tries != kMostRetriesInPlace; ++tries) {
    const odp::Target target{sges[stop.index].lkey, qp.domain, odp::kLocalWrite};
    if (!context_.memory.serve_fault({.target = target, .va = stop.va, .length_bytes = stop.left_bytes}))
      return false;
    ++context_.counters.faults_requester;
    if (scatter(context_.memory, qp.domain, sges, offset, data, stop) == odp::Outcome::done) return true;
  }
  return false;
}

void Requester::on_answer(QueuePair& qp, const wire::Packet& packet) {
  RequesterState& state = qp.requester;
  uint32_t index = qp.send_ring.head();
  while (index != state.started && qp.progress_at(index).answered == 0) ++index;
  const wire::Psn psn = packet.bth.psn;
  if (index == state.started || psn >= state.sent_psn) return context_.count(DropReason::unexpected_response);
  const SendProgress progress = qp.progress_at(index);
  const wire::Psn due = std::max(progress.first_psn, state.unacked_psn);
  if (psn != due) [[unlikely]] {
    if (psn < due) return context_.count(DropReason::stale_ack);
    ++context_.counters.out_of_sequence;
    ++qp.counters.out_of_sequence;
    acknowledge_before(qp, progress.first_psn);
    return on_response_gap(qp);
  }
  if (index != qp.send_ring.head() || progress.first_psn > state.unacked_psn)
    acknowledge_before(qp, progress.first_psn);

  SendWqe& wqe = *qp.send_ring.header_at(index);
  const auto number = static_cast<uint32_t>(psn.distance_from(progress.first_psn));
  const uint32_t offset = number * qp.mtu_bytes;
  const bool last = number + 1 == progress.packets;
  if (packet.info->ends_message() != last ||
      !answer_fits(wqe, packet, last ? wqe.length_bytes - offset : qp.mtu_bytes))
    return fail(qp, CompletionStatus::bad_response);

  const std::span<const Sge> sges(qp.send_ring.sges_of(&wqe), wqe.sge_count);
  std::array<uint8_t, kAtomicBytes> original;
  std::span<const uint8_t> data = packet.payload();
  if (is_atomic(wqe.opcode)) {
    const uint64_t value = packet.atomic_ack();
    std::memcpy(original.data(), &value, original.size());
    data = original;
  }
  SgeSpan stop;
  switch (data.empty() ? odp::Outcome::done : scatter(context_.memory, qp.domain, sges, offset, data, stop)) {
    case odp::Outcome::done:
      break;
    case odp::Outcome::miss:
      if (place_when_served(qp, sges, offset, data, stop)) break;
      // The page was evicted since the READ began: fault it in, then request the rest of the READ again. If
      // the send position waits for another page, this one has priority: it is older.
      state.gap_reported = true;
      if (state.fault_wait && state.current == index && state.packet == number) return;
      go_back_to(qp, psn);
      if (hold_for(qp, {sges[stop.index].lkey, qp.domain, odp::kLocalWrite}, stop.va, stop.left_bytes) ==
          Step::retry)
        context_.make_ready(qp);
      return;
    case odp::Outcome::violation:
      return fail(qp, CompletionStatus::local_protection);
  }
  state.fault_failed = false;
  if (packet.info->has(wire::kAeth)) take_credits(qp, packet.aeth());
  const wire::Psn before = state.unacked_psn;
  state.unacked_psn = psn.next();
  if (last) {
    --state.reads_outstanding;
    complete_head(qp);
  }
  note_progress(qp, before);
}

void Requester::fail(QueuePair& qp, CompletionStatus status) {
  context_.report(qp, status);
  if (qp.send_ring.head() != qp.send_ring.tail()) context_.complete_send(qp, status);
  if (qp.protocol() != Protocol::unreliable || qp.lost_completion) return context_.enter_error(qp);
  // Only the send queue of a UC QP fails (IBA 10.3.1.6); it continues to receive.
  forget_fault(qp);
  qp.state.store(QpState::sqe, std::memory_order_relaxed);
  flush_sends(qp);
}

}  // namespace faultline::transport
