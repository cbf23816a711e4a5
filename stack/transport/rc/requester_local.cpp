// SPDX-License-Identifier: BSD-3-Clause
// Work requests without packets: binding and invalidating memory windows, in send queue order (IBA 10.8.2,
// 11.4.1.1).
#include "stack/transport/rc/requester.hpp"

namespace faultline::transport {

namespace {

odp::WindowBinding binding_of(const QueuePair& qp, const SendWqe& wqe) {
  return {.window = wqe.rkey,
          .new_key = wqe.immediate_or_rkey,
          .type = static_cast<odp::WindowType>(wqe.window_type),
          .domain = qp.domain,
          .qpn = qp.qpn,
          .region = wqe.bind_lkey,
          .va = wqe.remote_va,
          .length_bytes = wqe.bind_length_bytes,
          .access = wqe.bind_access};
}

}  // namespace

/// Executes immediately; completes after the earlier WQEs.
Requester::Step Requester::run_local(QueuePair& qp, const SendWqe& wqe) {
  RequesterState& state = qp.requester;
  if (wqe.opcode == SendOpcode::bind_mw) {
    if (context_.memory.bind_window(binding_of(qp, wqe)) != odp::Outcome::done)
      return fail_in_order(qp, CompletionStatus::mw_bind);
  } else if (context_.memory.invalidate(wqe.immediate_or_rkey, qp.domain, qp.qpn, false) !=
             odp::Outcome::done) {
    return fail_in_order(qp, CompletionStatus::mw_bind);
  }
  qp.progress_at(state.current) = {
      .first_psn = state.next_psn, .packets = 0, .answered = 0, .signaled = context_.is_signaled(qp, wqe)};
  ++state.started;
  ++state.current;
  state.packet = 0;
  complete_local(qp);
  return Step::sent;
}

}  // namespace faultline::transport
