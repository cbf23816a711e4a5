// SPDX-License-Identifier: BSD-3-Clause
#include "stack/cm/state.hpp"

#include <array>
#include <cassert>
#include <cstddef>
#include <initializer_list>

namespace faultline::cm {
namespace {

constexpr size_t kStates = static_cast<size_t>(State::count_);
constexpr size_t kInputs = static_cast<size_t>(Input::count_);

using Table = std::array<std::array<Transition, kInputs>, kStates>;

constexpr std::array<std::string_view, kStates> kNames{
    "listening",    "req_sent", "mra_req_received", "rep_received",      "mra_rep_sent", "req_received",
    "mra_req_sent", "rep_sent", "mra_rep_received", "established",       "dreq_sent",    "dreq_received",
    "time_wait",    "closed",   "sidr_req_sent",    "sidr_req_received", "sidr_rep_sent"};

constexpr Table make_table() {
  Table table{};
  // Default: stay in the state, without an action.
  for (size_t state = 0; state < kStates; ++state)
    for (Transition& transition : table[state]) transition = {static_cast<State>(state), Action::none};
  const auto on = [&table](std::initializer_list<State> states, Input input, State next, Action action) {
    for (const State state : states)
      table[static_cast<size_t>(state)][static_cast<size_t>(input)] = {next, action};
  };
  // As `on`, but the state does not change.
  const auto in = [&on](std::initializer_list<State> states, Input input, Action action) {
    for (const State state : states) on({state}, input, state, action);
  };
  using S = State;
  using I = Input;
  using A = Action;

  // Active side, up to the REP (12.9.7.1).
  on({S::req_sent}, I::mra_req, S::mra_req_received, A::extend_wait);
  on({S::req_sent, S::mra_req_received}, I::rep, S::rep_received, A::take_rep);
  on({S::req_sent, S::mra_req_received}, I::rej, S::closed, A::report_rejected);
  on({S::req_sent, S::mra_req_received}, I::expired, S::closed, A::report_unreachable);
  on({S::req_sent, S::mra_req_received}, I::destroy, S::closed, A::send_rej_timeout);
  // From the REP to the RTU. A duplicate REP is answered by an MRA.
  on({S::rep_received, S::mra_rep_sent}, I::confirm, S::established, A::send_rtu);
  on({S::rep_received, S::mra_rep_sent}, I::reject, S::closed, A::send_rej);
  on({S::rep_received, S::mra_rep_sent}, I::delay, S::mra_rep_sent, A::send_mra);
  on({S::rep_received, S::mra_rep_sent}, I::rep, S::mra_rep_sent, A::send_mra);
  on({S::rep_received, S::mra_rep_sent}, I::rej, S::closed, A::report_rejected);
  on({S::rep_received, S::mra_rep_sent}, I::destroy, S::closed, A::send_rej);

  // Passive side, up to the REP (12.9.7.2). A duplicate REQ is answered by an MRA.
  on({S::req_received, S::mra_req_sent}, I::accept, S::rep_sent, A::send_rep);
  on({S::req_received, S::mra_req_sent}, I::reject, S::closed, A::send_rej);
  on({S::req_received, S::mra_req_sent}, I::delay, S::mra_req_sent, A::send_mra);
  on({S::req_received, S::mra_req_sent}, I::req, S::mra_req_sent, A::send_mra);
  on({S::req_received, S::mra_req_sent}, I::rej, S::closed, A::report_rejected);
  on({S::req_received, S::mra_req_sent}, I::destroy, S::closed, A::send_rej);
  // From the REP to the RTU, or to an equivalent: received data, or the peer's DREQ.
  in({S::rep_sent, S::mra_rep_received}, I::req, A::send_again);
  on({S::rep_sent}, I::mra_rep, S::mra_rep_received, A::extend_wait);
  on({S::rep_sent, S::mra_rep_received}, I::rtu, S::established, A::report_established);
  on({S::rep_sent, S::mra_rep_received}, I::notify_established, S::established, A::report_established);
  on({S::rep_sent, S::mra_rep_received}, I::dreq, S::dreq_received, A::report_disconnected);
  on({S::rep_sent, S::mra_rep_received}, I::rej, S::closed, A::report_rejected);
  on({S::rep_sent, S::mra_rep_received}, I::reject, S::closed, A::send_rej);
  on({S::rep_sent, S::mra_rep_received}, I::expired, S::closed, A::report_unreachable);
  on({S::rep_sent, S::mra_rep_received}, I::destroy, S::closed, A::send_rej);

  // Both sides. A duplicate REP means that the RTU was lost, so the RTU is retransmitted.
  in({S::established}, I::rep, A::send_again);
  on({S::established}, I::dreq, S::dreq_received, A::report_disconnected);
  on({S::established}, I::disconnect, S::dreq_sent, A::send_dreq);
  on({S::established}, I::destroy, S::dreq_sent, A::send_dreq);
  // A passive side that received no RTU gives up with a REJ.
  on({S::established}, I::rej, S::time_wait, A::report_rejected);
  on({S::dreq_sent}, I::drep, S::time_wait, A::report_disconnected);
  on({S::dreq_sent}, I::dreq, S::time_wait, A::answer_and_report_disconnected);
  on({S::dreq_sent}, I::rej, S::time_wait, A::report_disconnected);
  on({S::dreq_sent}, I::expired, S::time_wait, A::report_disconnected);
  on({S::dreq_received}, I::disconnect, S::time_wait, A::send_drep);
  on({S::dreq_received}, I::destroy, S::time_wait, A::send_drep);
  in({S::time_wait, S::closed}, I::dreq, A::send_drep);
  in({S::time_wait}, I::req, A::send_stale);
  on({S::time_wait}, I::expired, S::closed, A::report_time_wait_over);

  // A duplicate of a rejected message means that the REJ was lost, so the REJ is retransmitted.
  in({S::closed}, I::req, A::send_again);
  in({S::closed}, I::rep, A::send_again);

  // Datagram services (12.11). An answered request is kept for a while, since the SIDR_REP may be lost.
  on({S::sidr_req_sent}, I::sidr_rep, S::closed, A::report_resolved);
  on({S::sidr_req_sent}, I::expired, S::closed, A::report_service_unreachable);
  on({S::sidr_req_received}, I::answer, S::sidr_rep_sent, A::send_sidr_rep);
  on({S::sidr_req_received}, I::destroy, S::sidr_rep_sent, A::send_sidr_reject);
  in({S::sidr_rep_sent}, I::sidr_req, A::send_again);
  on({S::sidr_rep_sent}, I::expired, S::closed, A::remove);

  on({S::listening, S::closed, S::sidr_req_sent}, I::destroy, S::closed, A::remove);
  return table;
}

constexpr Table kTable = make_table();

}  // namespace

Transition transition(State state, Input input) {
  assert(state < State::count_ && input < Input::count_);
  return kTable[static_cast<size_t>(state)][static_cast<size_t>(input)];
}

std::string_view name_of(State state) {
  return kNames[static_cast<size_t>(state)];
}

}  // namespace faultline::cm
