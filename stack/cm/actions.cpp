// SPDX-License-Identifier: BSD-3-Clause
// Implements the actions of the transitions in state.cpp.
#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "stack/cm/manager_impl.hpp"
#include "stack/wire/packet/byte_order.hpp"

namespace faultline::cm {
namespace {

// Limits of TIME_WAIT. A QPN is not reused while a packet of its connection may be in flight (IBA 12.9.8.4).
// That is the ACK timeout, within a range that is acceptable for a program.
constexpr uint64_t kMinTimeWaitNs = 10'000'000;
constexpr uint64_t kMaxTimeWaitNs = 20'000'000'000;
// The peer of a lost SIDR_REP repeats its request within this time.
constexpr uint64_t kSidrLingerNs = 5'000'000'000;

// Factor by which retransmission slows down after an MRA has confirmed the message's arrival.
constexpr uint64_t kPatientFactor = 8;

bool awaits_program(State state) {
  return state == State::req_received || state == State::mra_req_sent || state == State::sidr_req_received;
}

/// Returns the code of the ACK timeout: the rounded logarithm of the path's timeout plus the peer's ACK
/// delay.
uint8_t ack_timeout(uint8_t path_timeout, uint8_t ack_delay) {
  const uint8_t longer = std::max(path_timeout, ack_delay);
  const uint8_t shorter = std::min(path_timeout, ack_delay);
  return static_cast<uint8_t>(std::min(longer + (shorter + 1 >= longer ? 1 : 0), 31));
}

}  // namespace

bool Manager::Impl::apply(Record& record, Input input, const ActionInput& cause) {
  const State from = record.state;
  const Transition step = transition(from, input);
  if (step.action == Action::none) return false;
  if (step.next != from) enter(record, step.next, cause.now);
  if (record.awaiting && !awaits_program(step.next)) end_awaiting(record);
  act(record, step.action, cause);
  if (record.state == State::closed && record.orphan) erase(record);
  return true;
}

int Manager::Impl::command(Id id, Input input, const ActionInput& cause) {
  Record* const record = find_owned(id);
  try {
    return record != nullptr && apply(*record, input, cause) ? 0 : EINVAL;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

void Manager::Impl::enter(Record& record, State state, TimeNs now) {
  record.state = state;
  stop_retry(record);
  switch (state) {
    case State::time_wait:
      // The QP is free for another connection, whose peer knows that this one has ended (Linux does so, too).
      forget_peer_qp(record);
      set_deadline(record, now + std::clamp(ns_of_code(record.qp.timeout), kMinTimeWaitNs, kMaxTimeWaitNs));
      break;
    case State::sidr_rep_sent:
      set_deadline(record, now + kSidrLingerNs);
      break;
    case State::closed:
      forget_peer_qp(record);
      break;
    default:
      break;
  }
}

void Manager::Impl::act(Record& record, Action action, const ActionInput& cause) {
  switch (action) {
    case Action::none:
    case Action::count_:
    case Action::remove:
      return;
    case Action::send_rep:
      return send_rep(record, cause);
    case Action::send_rtu:
      return send_rtu(record, cause);
    case Action::send_rej:
      return send_rej(record, cause);
    case Action::send_rej_timeout:
      return send_rej_timeout(record);
    case Action::send_mra:
      return send_mra(record, cause);
    case Action::send_dreq:
      return send_dreq(record, cause);
    case Action::send_drep:
      return send_drep(record, cause);
    case Action::send_sidr_rep:
      return send_sidr_rep(record, *cause.answer);
    case Action::send_sidr_reject:
      return send_sidr_rep(record, {.status = wire::SidrStatus::rejected});
    case Action::send_stale:
      return send_stale(record, cause);
    case Action::send_again:
      return send_again(record);
    case Action::extend_wait:
      return extend_wait(record, cause);
    case Action::take_rep:
      return take_rep(record, cause);
    case Action::report_established:
      tell(record,
           {.kind = EventKind::established,
            .private_data =
                cause.mad != nullptr ? PrivateData(wire::read_rtu(*cause.mad).private_data) : PrivateData()});
      return;
    case Action::report_rejected:
      return report_rejected(record, cause);
    case Action::report_unreachable:
      send_rej_timeout(record);
      return tell(record, {.kind = EventKind::unreachable});
    case Action::report_disconnected:
      return report_disconnected(record, cause);
    case Action::answer_and_report_disconnected:
      send_drep(record, {.now = cause.now});
      return report_disconnected(record, cause);
    case Action::report_time_wait_over:
      return tell(record, {.kind = EventKind::time_wait_over});
    case Action::report_resolved:
      return report_resolved(record, cause);
    case Action::report_service_unreachable:
      return tell(record, {.kind = EventKind::service_unreachable});
  }
}

// ---- sending ----

void Manager::Impl::remember(Record& record, wire::CmAttribute attribute) {
  record.has_last = true;
  record.last_attribute = attribute;
}

void Manager::Impl::send(Record& record) {
  ++counters.sent;
  sender.send_mad(record.last, record.qp.path.av, record.qp.path.pkey);
}

void Manager::Impl::send_again(Record& record) {
  if (!record.has_last) return;
  ++counters.sent_again;
  send(record);
}

void Manager::Impl::send_stateless_reply(const wire::MadBytes& mad, const MadSource& to) {
  if (!stateless_replies.take(received_at_ns)) return drop(DropReason::rate);
  ++counters.sent;
  sender.send_mad(mad, to.reply, to.pkey);
}

void Manager::Impl::send_rep(Record& record, const ActionInput& cause) {
  const AcceptParams& params = *cause.accept;
  const bool xrc = record.qp.transport == wire::CmTransport::xrc;
  record.qp.local_qpn = params.qpn;
  record.qp.rq_psn = params.starting_psn & wire::Psn::kMask;
  record.qp.max_dest_rd_atomic = params.responder_resources;
  record.qp.max_rd_atomic = params.initiator_depth;
  wire::CmRep rep;
  rep.local_id = record.id;
  rep.remote_id = record.remote_id;
  (xrc ? rep.eecn : rep.qpn) = params.qpn;
  rep.starting_psn = record.qp.rq_psn;
  rep.responder_resources = params.responder_resources;
  rep.initiator_depth = params.initiator_depth;
  rep.target_ack_delay = params.target_ack_delay;
  rep.flow_control = params.flow_control;
  rep.rnr_retry_count = params.rnr_retry_count;
  rep.srq = params.srq || xrc;
  rep.ca_guid = config.ca_guid;
  rep.private_data = params.private_data;
  wire::write(record.last, record.transaction_id, rep);
  remember(record, wire::CmAttribute::rep);
  start_retry(record, record.timing.max_retries, cause.now);
  send(record);
}

void Manager::Impl::send_rtu(Record& record, const ActionInput& cause) {
  wire::write(
      record.last, record.transaction_id,
      wire::CmRtu{.local_id = record.id, .remote_id = record.remote_id, .private_data = cause.private_data});
  remember(record, wire::CmAttribute::rtu);
  send(record);
}

void Manager::Impl::send_rej(Record& record, const ActionInput& cause) {
  wire::CmAnswered rejected = wire::CmAnswered::rep;
  if (!record.active) rejected = record.has_last ? wire::CmAnswered::other : wire::CmAnswered::req;
  wire::write(record.last, record.transaction_id,
              wire::CmRej{.local_id = record.id,
                          .remote_id = record.remote_id,
                          .rejected = rejected,
                          .reason = cause.reason,
                          .info = cause.reject_info,
                          .private_data = cause.private_data});
  remember(record, wire::CmAttribute::rej);
  send(record);
}

/// Sends a REJ after a timeout. Its information is the local CA GUID, since the peer's ID may be unknown (IBA
/// 12.6.7.2, code 4).
void Manager::Impl::send_rej_timeout(Record& record) {
  std::array<uint8_t, sizeof config.ca_guid> guid;
  wire::store_be64(guid.data(), config.ca_guid);
  wire::write(record.last, record.transaction_id,
              wire::CmRej{.local_id = record.id,
                          .remote_id = record.remote_id,
                          .rejected = record.active ? wire::CmAnswered::req : wire::CmAnswered::other,
                          .reason = wire::RejectReason::timeout,
                          .info = guid});
  remember(record, wire::CmAttribute::rej);
  send(record);
}

void Manager::Impl::send_mra(Record& record, const ActionInput& cause) {
  wire::MadBytes mad;
  wire::write(mad, record.transaction_id,
              wire::CmMra{.local_id = record.id,
                          .remote_id = record.remote_id,
                          .answered = record.active ? wire::CmAnswered::rep : wire::CmAnswered::req,
                          .service_timeout = cause.service_timeout,
                          .private_data = cause.private_data});
  ++counters.sent;
  sender.send_mad(mad, record.qp.path.av, record.qp.path.pkey);
}

void Manager::Impl::send_dreq(Record& record, const ActionInput& cause) {
  wire::write(record.last, record.transaction_id,
              wire::CmDreq{.local_id = record.id,
                           .remote_id = record.remote_id,
                           .remote_qpn = record.qp.remote_qpn,
                           .private_data = cause.private_data});
  remember(record, wire::CmAttribute::dreq);
  start_retry(record, std::min<uint32_t>(record.timing.max_retries, config.disconnect_retries), cause.now);
  send(record);
}

void Manager::Impl::send_drep(Record& record, const ActionInput& cause) {
  // Answers a duplicate DREQ as the first one.
  if (record.has_last && record.last_attribute == wire::CmAttribute::drep) return send_again(record);
  wire::write(
      record.last, record.transaction_id,
      wire::CmDrep{.local_id = record.id, .remote_id = record.remote_id, .private_data = cause.private_data});
  remember(record, wire::CmAttribute::drep);
  send(record);
}

void Manager::Impl::send_sidr_rep(Record& record, const ResolveAnswer& answer) {
  wire::write(record.last, record.transaction_id,
              wire::CmSidrRep{.request_id = record.remote_id,
                              .status = answer.status,
                              .qpn = answer.qpn,
                              .service_id = record.service_id,
                              .qkey = answer.qkey,
                              .info = {},
                              .private_data = answer.private_data});
  remember(record, wire::CmAttribute::sidr_rep);
  send(record);
}

void Manager::Impl::send_stale(const Record& record, const ActionInput& cause) {
  ++counters.stale;
  wire::MadBytes mad;
  wire::write(mad, cause.mad->transaction_id(),
              wire::CmRej{.local_id = 0,
                          .remote_id = record.remote_id,
                          .rejected = wire::CmAnswered::req,
                          .reason = wire::RejectReason::stale_connection});
  ++counters.sent;
  sender.send_mad(mad, record.qp.path.av, record.qp.path.pkey);
}

// ---- received messages ----

void Manager::Impl::extend_wait(Record& record, const ActionInput& cause) {
  Retry& retry = record.retry;
  // The state change stopped the retries. Retransmission continues at a low rate, because the peer's reply
  // may get lost. `retries_left` is for a peer that also misses the MRA's deadline.
  retry.period_ns = std::max<uint64_t>(record.response_ns, kMinTimeWaitNs);
  retry.retries_left = 1;
  retry.early_gap_ns =
      config.early_resend_ns != 0 ? kPatientFactor * config.early_resend_ns : retry.period_ns;
  retry.next_early = cause.now + retry.early_gap_ns;
  retry.period_end = cause.now + retry.period_ns + ns_of_code(wire::read_mra(*cause.mad).service_timeout);
  set_deadline(record, retry.deadline());
}

void Manager::Impl::take_rep(Record& record, const ActionInput& cause) {
  const wire::CmRep rep = wire::read_rep(*cause.mad);
  QpSettings& qp = record.qp;
  record.remote_id = rep.local_id;
  record.remote_guid = rep.ca_guid;
  qp.remote_qpn = qp.transport == wire::CmTransport::xrc ? rep.eecn : rep.qpn;
  qp.sq_psn = rep.starting_psn;
  // At most the offered and requested values (IBA 12.7.29, 12.7.30).
  qp.max_dest_rd_atomic = std::min(qp.max_dest_rd_atomic, rep.initiator_depth);
  qp.max_rd_atomic = std::min(qp.max_rd_atomic, rep.responder_resources);
  qp.rnr_retry_count = rep.rnr_retry_count;
  qp.timeout = ack_timeout(qp.path.local_ack_timeout, rep.target_ack_delay);
  qp.remote_srq = rep.srq;
  index_peer_qp(record);
  if (record.peer_qp.id == 0) {
    // Another connection has that QP: the peer has forgotten it, or would use one QP for two connections
    // (12.9.8.3.1).
    ++counters.stale;
    enter(record, State::closed, cause.now);
    send_rej(record, {.now = cause.now, .reason = wire::RejectReason::stale_connection});
    return tell(record, {.kind = EventKind::rejected, .reason = wire::RejectReason::stale_connection});
  }
  tell(record, {.kind = EventKind::replied,
                .remote_qpn = qp.remote_qpn,
                .responder_resources = qp.max_dest_rd_atomic,
                .initiator_depth = qp.max_rd_atomic,
                .retry_count = qp.retry_count,
                .rnr_retry_count = qp.rnr_retry_count,
                .flow_control = rep.flow_control,
                .srq = rep.srq,
                .transport = qp.transport,
                .private_data = PrivateData(rep.private_data)});
}

void Manager::Impl::report_rejected(Record& record, const ActionInput& cause) {
  const wire::CmRej rej = wire::read_rej(*cause.mad);
  record.has_last = false;
  tell(record, {.kind = EventKind::rejected,
                .reason = rej.reason,
                .reject_info = PrivateData(rej.info),
                .private_data = PrivateData(rej.private_data)});
}

void Manager::Impl::report_disconnected(Record& record, const ActionInput& cause) {
  Event event{.kind = EventKind::disconnected};
  if (cause.mad != nullptr && cause.mad->attribute() == wire::CmAttribute::dreq)
    event.private_data = PrivateData(wire::read_dreq(*cause.mad).private_data);
  if (cause.mad != nullptr && cause.mad->attribute() == wire::CmAttribute::drep)
    event.private_data = PrivateData(wire::read_drep(*cause.mad).private_data);
  tell(record, event);
}

void Manager::Impl::report_resolved(Record& record, const ActionInput& cause) {
  const wire::CmSidrRep answer = wire::read_sidr_rep(*cause.mad);
  tell(record, {.kind = EventKind::service_resolved,
                .remote_qpn = answer.qpn,
                .remote_qkey = answer.qkey,
                .sidr_status = answer.status,
                .private_data = PrivateData(answer.private_data)});
}

void Manager::Impl::tell(const Record& record, Event event) {
  if (record.orphan) return;
  event.id = record.id;
  event.user = record.user;
  events.push_back(event);
}

}  // namespace faultline::cm
