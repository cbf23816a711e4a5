// SPDX-License-Identifier: BSD-3-Clause
// Loss recovery of the requester: decides what to retransmit from NAKs, selective acknowledgements, early
// probes and the ACK timeout of the verbs attributes.
#include <algorithm>
#include <array>

#include "stack/base/probes.hpp"
#include "stack/transport/rc/requester.hpp"

namespace faultline::transport {

namespace {

/// A packet counts as lost when this many packets sent after it have arrived. Fewer may be reordering (the
/// three of RFC 5681).
constexpr uint32_t kReorderPackets = 3;
/// Maximum probes without progress. Each waits twice as long as the previous one.
constexpr uint8_t kMaxProbes = 6;
/// Minimum probe delay: a peer whose engine thread shares its CPU may respond this late.
constexpr uint64_t kMinProbeNs = 200'000;
/// Probe delay before the first round trip measurement.
constexpr uint64_t kFirstProbeNs = 5'000'000;
/// The ACK timeout doubles with every second retry, up to this shift: IBA 9.7.6.1.3 permits up to four times
/// T_tr.
constexpr uint8_t kMaxTimeoutShift = 2;
constexpr uint32_t kLeastWindowPackets = 8;
constexpr uint16_t kWidenPackets = 8;

}  // namespace

/// Retransmits everything from `psn` on, except packets that are known to have arrived.
void Requester::go_back_to(QueuePair& qp, wire::Psn psn) {
  RequesterState& state = qp.requester;
  RecoveryState& recovery = qp.recovery;
  recovery.resent.clear();
  recovery.received.remove(psn);
  recovery.lost_end = state.sent_psn;
  recovery.timing = false;
  move_back_to(qp, psn);
}

void Requester::move_back_to(QueuePair& qp, wire::Psn psn) {
  RequesterState& state = qp.requester;
  forget_fault(qp);
  qp.recovery.asked_psn = state.unacked_psn.minus(1);
  uint32_t index = qp.send_ring.head();
  while (index != state.started) {
    const SendProgress& progress = qp.progress_at(index);
    if (progress.first_psn.plus(progress.packets) > psn) break;
    ++index;
  }
  state.current = index;
  state.packet = 0;
  if (index != state.started)
    state.packet = static_cast<uint32_t>(std::max(psn.distance_from(qp.progress_at(index).first_psn), 0));
  context_.make_ready(qp);
}

/// Returns the PSN of the first request that waits for its own response. Later acknowledgements and responses
/// are useless until that response arrives. Everything after that request is therefore retransmitted, even if
/// a selective acknowledgement lists it.
wire::Psn Requester::first_unanswered(QueuePair& qp) {
  const RequesterState& state = qp.requester;
  if (state.reads_outstanding != 0) {
    for (uint32_t index = qp.send_ring.head(); index != state.started; ++index)
      if (qp.progress_at(index).answered != 0) return qp.progress_at(index).first_psn;
  }
  return state.sent_psn;
}

/// Moves the send position past packets that need no retransmission.
void Requester::skip_acknowledged(QueuePair& qp) {
  RequesterState& state = qp.requester;
  const RecoveryState& recovery = qp.recovery;
  if (state.current == state.started) return;
  const wire::Psn unanswered = qp.send_psn() < state.sent_psn ? first_unanswered(qp) : state.sent_psn;
  while (state.current != state.started) {
    if (qp.progress_at(state.current).packets == 0) {
      ++state.current;  // it has no packets
      continue;
    }
    const wire::Psn psn = qp.send_psn();
    if (psn >= state.sent_psn) return;
    if (psn < recovery.lost_end) {
      if (psn.distance_from(state.unacked_psn) >= static_cast<int32_t>(PsnSet::kPsns)) return;
      // The oldest one is missing even if it was reported as received: it arrived, but no receive was posted
      // for it.
      const bool arrived = recovery.received.has(psn) && psn < unanswered && psn != state.unacked_psn;
      if (!arrived && !recovery.resent.has(psn)) return;
    }
    const SendProgress& progress = qp.progress_at(state.current);
    state.packet += progress.answered != 0 ? progress.packets - state.packet : 1;
    if (state.packet == progress.packets) {
      ++state.current;
      state.packet = 0;
    }
  }
}

/// Records a retransmission.
void Requester::note_resent(QueuePair& qp, wire::Psn psn) {
  RecoveryState& recovery = qp.recovery;
  ++context_.counters.retransmitted_packets;
  ++qp.counters.retransmitted_packets;
  probes::retransmit(qp.qpn, psn.value(), qp.requester.unacked_psn.value());
  if (psn.distance_from(qp.requester.unacked_psn) < static_cast<int32_t>(PsnSet::kPsns))
    recovery.note_resent(psn);
  recovery.round_end = qp.requester.sent_psn;
  if (!recovery.timing || psn > recovery.timed_psn) return;
  if (recovery.probe_out && psn == recovery.probe_psn)
    recovery.timed_repeated = true;
  else
    recovery.timing = false;
}

void Requester::on_selective_acknowledge(QueuePair& qp, const wire::Packet& packet) {
  RequesterState& state = qp.requester;
  RecoveryState& recovery = qp.recovery;
  const wire::Psn gap = packet.bth.psn;
  if (gap < state.unacked_psn || gap >= state.sent_psn) return context_.count(DropReason::stale_ack);
  ++context_.counters.selective_acks_received;
  take_credits(qp, packet.aeth());
  if (!acknowledge_before(qp, gap)) return on_response_gap(qp);

  const wire::SackEth sack = packet.sack_eth();
  recovery.received.remove(gap);
  // Iterates from the newest packet in the map; the third one that arrived bounds what counts as lost.
  const auto known = std::min<int32_t>(state.sent_psn.distance_from(gap) - 1, PsnSet::kPsns - 1);
  wire::Psn newest = gap;
  wire::Psn lost_end = gap;
  uint32_t arrived = 0;
  for (int32_t i = known; i-- > 0;) {
    const wire::Psn psn = gap.plus(static_cast<uint32_t>(i) + 1);
    if (!sack.has(static_cast<uint32_t>(i))) {
      recovery.received.remove(psn);
      continue;
    }
    recovery.note_received(psn);
    if (arrived++ == 0) newest = psn;
    if (arrived == kReorderPackets) lost_end = psn;
  }
  // A gap that is reported repeatedly is not reordering either.
  if (recovery.gap_psn != gap) recovery.gap_reports = 0;
  recovery.gap_psn = gap;
  if (arrived != 0 && ++recovery.gap_reports >= kReorderPackets) lost_end = newest;
  if (arrived == 0 || state.rnr_deadline_ns != kNever) return;
  // A packet newer than all retransmissions has arrived: retransmissions that have not arrived are lost
  // again.
  if (!recovery.resent.empty() && newest >= recovery.round_end) recovery.resent.clear();
  if (lost_end <= gap) return;
  wire::Psn first = gap;
  while (first < lost_end && (recovery.received.has(first) || recovery.resent.has(first)))
    first = first.next();
  if (first >= lost_end) return;
  recovery.lost_end = lost_end;
  if (qp.rate_control != nullptr) qp.rate_control->on_loss(context_.now_ns);
  if (qp.send_psn() > first && !state.fault_wait) move_back_to(qp, first);
  arm_ack_timer(qp);
}

void Requester::on_sequence_nak(QueuePair& qp, wire::Psn psn) {
  RequesterState& state = qp.requester;
  // Some responders send sequence NAKs after an RNR NAK; the RNR timer still applies.
  if (state.rnr_deadline_ns != kNever || state.gap_reported) return;
  state.gap_reported = true;
  if (qp.rate_control != nullptr) qp.rate_control->on_loss(context_.now_ns);
  // A responder that holds packets after a gap sends selective acknowledgements instead.
  qp.recovery.received.clear();
  go_back_to(qp, psn);
}

void Requester::on_response_gap(QueuePair& qp) {
  RequesterState& state = qp.requester;
  if (state.gap_reported) return;
  state.gap_reported = true;
  cut_window(qp);
  go_back_to(qp, state.unacked_psn);
}

// ---- window ----

/// After a loss that repeats everything: a window that the path does not hold would be lost again and again,
/// and READs would be executed for nothing. Halves the window (RFC 5681, 3.1).
void Requester::cut_window(QueuePair& qp) {
  const uint32_t whole = context_.config.window_packets;
  const uint32_t half = static_cast<uint32_t>(window_packets(qp)) / 2;
  const uint32_t left = std::min(whole, std::max(half, kLeastWindowPackets));
  qp.requester.window_cut_packets = static_cast<uint16_t>(std::min<uint32_t>(whole - left, UINT16_MAX));
  qp.recovery.window_progress_packets = 0;
}

/// Widens a cut window with each one that is acknowledged.
void Requester::widen_window(QueuePair& qp, wire::Psn from) {
  uint32_t& progress = qp.recovery.window_progress_packets;
  progress += static_cast<uint32_t>(qp.requester.unacked_psn.distance_from(from));
  if (progress < static_cast<uint32_t>(window_packets(qp))) return;
  progress = 0;
  uint16_t& cut = qp.requester.window_cut_packets;
  cut = static_cast<uint16_t>(cut - std::min(cut, kWidenPackets));
}

// ---- round trip and probe ----

/// Starts the measurement with a packet that requests an acknowledgement, on its first transmission.
void Requester::start_timing(QueuePair& qp, wire::Psn psn) {
  RecoveryState& recovery = qp.recovery;
  if (recovery.timing) return;
  recovery.timing = true;
  recovery.timed_repeated = false;
  recovery.timed_psn = psn;
  recovery.timed_ns = context_.now_ns;
}

/// Updates recovery state after the window has moved from `from` to unacked_psn.
void Requester::on_window_moved(QueuePair& qp, wire::Psn from) {
  RecoveryState& recovery = qp.recovery;
  const wire::Psn to = qp.requester.unacked_psn;
  recovery.forget(from, to);
  recovery.probes = 0;
  if (recovery.timing && recovery.timed_psn < to) {
    recovery.timing = false;
    const uint64_t rtt_ns = std::max<uint64_t>(context_.now_ns - recovery.timed_ns, 1);
    if (recovery.timed_repeated) {
      recovery.round_trip.sample_repeated(rtt_ns);
    } else {
      recovery.round_trip.sample(rtt_ns);
      if (qp.rate_control != nullptr) qp.rate_control->on_round_trip(rtt_ns, context_.now_ns);
    }
  }
  if (!recovery.probe_out || to <= recovery.probe_psn) return;
  // The acknowledgement covers the probed packet alone: the later packets, which were sent before the probe,
  // are lost.
  recovery.probe_out = false;
  const wire::Psn sent = qp.requester.sent_psn;
  if (to == recovery.probe_psn.next() && sent == recovery.probe_sent_end && to < sent &&
      !qp.requester.fault_wait)
    go_back_to(qp, to);
}

void Requester::arm_ack_timer(QueuePair& qp) {
  RequesterState& state = qp.requester;
  RecoveryState& recovery = qp.recovery;
  if (recovery.ack_timeout_ns == 0) return;
  const auto used = static_cast<uint8_t>(qp.attributes.retry_count - state.retries_left);
  const uint64_t timeout_ns = recovery.ack_timeout_ns << std::min<uint8_t>(used / 2, kMaxTimeoutShift);
  state.ack_deadline_ns = context_.now_ns + timeout_ns;
  recovery.probe_deadline_ns = kNever;
  if (context_.config.early_probe && recovery.probes < kMaxProbes) {
    const uint64_t patience_ns =
        recovery.round_trip.known() ? 2 * recovery.round_trip.patience_ns() : kFirstProbeNs;
    const uint64_t wait_ns = std::max(patience_ns, kMinProbeNs) << recovery.probes;
    if (wait_ns < timeout_ns) recovery.probe_deadline_ns = context_.now_ns + wait_ns;
  }
  context_.arm(qp, std::min(state.ack_deadline_ns, recovery.probe_deadline_ns));
}

/// Retransmits the oldest packet; the response shows what the peer has. Uses no retry of the verbs
/// attributes.
void Requester::probe(QueuePair& qp) {
  RequesterState& state = qp.requester;
  RecoveryState& recovery = qp.recovery;
  ++context_.counters.probes_sent;
  ++recovery.probes;
  recovery.probe_out = true;
  recovery.probe_psn = state.unacked_psn;
  recovery.probe_sent_end = state.sent_psn;
  state.gap_reported = false;
  const bool timing = recovery.timing;
  go_back_to(qp, state.unacked_psn);
  recovery.timing = timing;
  recovery.lost_end = state.unacked_psn.next();
  // The ACK timeout of the verbs attributes keeps running.
  const TimeNs ack_deadline_ns = state.ack_deadline_ns;
  arm_ack_timer(qp);
  state.ack_deadline_ns = ack_deadline_ns;
}

TimeNs Requester::next_deadline(const QueuePair& qp) {
  return std::min(
      {qp.requester.ack_deadline_ns, qp.requester.rnr_deadline_ns, qp.recovery.probe_deadline_ns});
}

/// True if the oldest packet is to be retransmitted but pacing, the port or other QPs still delay it: no
/// response can be expected.
bool Requester::waits_to_send(QueuePair& qp) {
  return qp.send_psn() <= qp.requester.unacked_psn;
}

void Requester::on_timer(QueuePair& qp) {
  RequesterState& state = qp.requester;
  RecoveryState& recovery = qp.recovery;
  if (state.rnr_deadline_ns <= context_.now_ns) {
    state.rnr_deadline_ns = kNever;
    context_.make_ready(qp);
  }
  if (state.ack_deadline_ns > context_.now_ns) {
    if (recovery.probe_deadline_ns > context_.now_ns) return;
    recovery.probe_deadline_ns = kNever;
    // Without an ACK deadline no response is expected: the QP waits for a local page or for the RNR timer.
    if (state.ack_deadline_ns != kNever) probe(qp);
    return;
  }
  if (waits_to_send(qp)) {
    state.ack_deadline_ns = recovery.probe_deadline_ns = kNever;  // set when it is sent
    return;
  }
  // The first timeout of a row shows when the timer was armed: at the last answer.
  if (state.retries_left == qp.attributes.retry_count) {
    const bool stalled = state.ack_deadline_ns == recovery.notified_ns + kStallSilenceNs;
    recovery.silent_since_ns =
        stalled ? recovery.notified_ns : state.ack_deadline_ns - recovery.ack_timeout_ns;
  }
  ++context_.counters.timeouts;
  ++qp.counters.timeouts;
  if (qp.rate_control != nullptr) qp.rate_control->on_loss(context_.now_ns);
  if (state.retries_left == 0) {
    ++context_.counters.retries_exceeded;
    return fail(qp, CompletionStatus::retry_exceeded);
  }
  --state.retries_left;
  state.gap_reported = false;
  recovery.received.clear();  // the peer may have dropped what it held
  cut_window(qp);
  go_back_to(qp, state.unacked_psn);
  arm_ack_timer(qp);
}

}  // namespace faultline::transport
