// SPDX-License-Identifier: BSD-3-Clause
// The communication manager's state machine as a table of states and inputs (IBA vol. 1, 12.9.7 and 12.11).
#pragma once

#include <cstdint>
#include <string_view>

namespace faultline::cm {

enum class State : uint8_t {
  listening,
  // active side
  req_sent,
  mra_req_received,
  rep_received,
  mra_rep_sent,
  // passive side
  req_received,
  mra_req_sent,
  rep_sent,
  mra_rep_received,
  // both
  established,
  dreq_sent,
  dreq_received,
  time_wait,
  closed,
  // datagram services
  sidr_req_sent,
  sidr_req_received,
  sidr_rep_sent,
  count_
};

enum class Input : uint8_t {
  // messages; a REQ or SIDR_REQ for an existing record is a duplicate
  req,
  mra_req,
  mra_rep,
  rej,
  rep,
  rtu,
  dreq,
  drep,
  sidr_req,
  sidr_rep,
  // calls of the program
  accept,
  confirm,
  reject,
  delay,
  disconnect,
  notify_established,
  answer,
  destroy,
  // timers
  expired,
  count_
};

enum class Action : uint8_t {
  none,    ///< a message is ignored; a call of the program is invalid
  remove,  ///< removes the record without a message
  send_rep,
  send_rtu,
  send_rej,
  send_rej_timeout,  ///< REJ with reason timeout
  send_mra,
  send_dreq,
  send_drep,
  send_sidr_rep,
  send_sidr_reject,
  send_stale,   ///< rejects a stale connection
  send_again,   ///< retransmits the last message
  extend_wait,  ///< upon an MRA
  take_rep,
  report_established,
  report_rejected,
  report_unreachable,  ///< and notifies the peer of the timeout
  report_disconnected,
  answer_and_report_disconnected,  ///< both sides disconnect: DREP
  report_time_wait_over,
  report_resolved,
  report_service_unreachable,
  count_
};

struct Transition {
  State next = State::closed;
  Action action = Action::none;
  friend bool operator==(const Transition&, const Transition&) = default;
};

[[nodiscard]] Transition transition(State state, Input input);

[[nodiscard]] std::string_view name_of(State state);

}  // namespace faultline::cm
