// SPDX-License-Identifier: BSD-3-Clause
#include "stack/trouble/scenario.hpp"

namespace faultline::trouble {

std::optional<EventKind> place_of(Action::Kind kind) {
  using enum Action::Kind;
  switch (kind) {
    case fail_call:
      return EventKind::call;
    case fail_send:
      return EventKind::send;
    case lose:
    case duplicate:
    case corrupt:
    case mark:
    case delay:
      return EventKind::packet;
    case fail_fault:
    case delay_fault:
      return EventKind::fault;
    case poll_nothing:
      return EventKind::poll;
    case reject:
      return EventKind::request;
    case raise_event:
    case fail_qp:
    case link_down:
      break;
  }
  return std::nullopt;
}

}  // namespace faultline::trouble
