// SPDX-License-Identifier: BSD-3-Clause
#include "stack/trouble/scenario.hpp"

namespace faultline::trouble {

std::optional<EventKind> place_of(Action::Kind kind) {
  using enum Action::Kind;
  switch (kind) {
    case fail_call:
    case delay_call:
      return EventKind::call;
    case fail_send:
      return EventKind::send;
    case lose:
    case duplicate:
    case corrupt:
    case mark:
    case delay:
    case reorder:
    case corrupt_payload:
    case partition:
    case rate:
    case slow:
    case inject_cnp:
    case inject_rnr:
    case inject_nak:
      return EventKind::packet;
    case fail_fault:
    case delay_fault:
      return EventKind::fault;
    case poll_nothing:
    case poll_few:
    case shuffle:
      return EventKind::poll;
    case reject:
      return EventKind::request;
    case hide_device:
      return EventKind::list;
    case fail_receive:
      return EventKind::receive;
    case raise_event:
    case fail_qp:
    case link_down:
    case link_up:
    case remove_device:
    case raise_cq_event:
    case overflow_cq:
    case wake:
    case moderate:
    case raise_srq_event:
    case raise_cm_event:
    case page_out:
      break;
  }
  return std::nullopt;
}

uint8_t concern_of(Action::Kind kind) {
  using enum Action::Kind;
  switch (kind) {
    case raise_cq_event:
    case overflow_cq:
    case wake:
    case moderate:
      return kConcernsCq;
    case raise_srq_event:
      return kConcernsSrq;
    case raise_cm_event:
      return kConcernsCm;
    case shuffle:
      return kConcernsQueues;
    default:
      return 0;
  }
}

bool changes_flow(Action::Kind kind) {
  return kind == Action::Kind::partition || kind == Action::Kind::rate || kind == Action::Kind::slow;
}

bool answers_request(Action::Kind kind) {
  return kind == Action::Kind::inject_rnr || kind == Action::Kind::inject_nak;
}

}  // namespace faultline::trouble
