// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/story/names.hpp"

namespace faultline::story {

std::string_view name_of(EventKind kind) {
  switch (kind) {
    case EventKind::packet:
      return "packet";
    case EventKind::post:
      return "post";
    case EventKind::completion:
      return "completion";
    case EventKind::fault:
      return "fault";
    case EventKind::fault_end:
      return "fault end";
    case EventKind::invalidation:
      return "invalidation";
    case EventKind::timer:
      return "timer";
    case EventKind::congestion:
      return "congestion";
    case EventKind::drop:
      return "drop";
  }
  return "";
}

std::string_view name_of(StallCause cause) {
  switch (cause) {
    case StallCause::unknown:
      return "no answer";
    case StallCause::page_fault:
      return "page fault";
    case StallCause::receiver_unready:
      return "receiver not ready";
    case StallCause::loss:
      return "loss";
  }
  return "";
}

std::string_view name_of(Rule rule) {
  switch (rule) {
    case Rule::go_back_n_storm:
      return "go-back-N storm";
    case Rule::rnr_storm:
      return "RNR storm";
    case Rule::fault_in_critical_path:
      return "fault in the critical path";
    case Rule::unread_cq:
      return "unread CQ";
    case Rule::closed_window:
      return "window that never opens";
  }
  return "";
}

std::string_view name_of(wire::Service service) {
  switch (service) {
    case wire::Service::rc:
      return "RC";
    case wire::Service::uc:
      return "UC";
    case wire::Service::rd:
      return "RD";
    case wire::Service::ud:
      return "UD";
    case wire::Service::cnp:
      return "CNP";
    case wire::Service::xrc:
      return "XRC";
    case wire::Service::manufacturer:
      return "RC";
  }
  return "";
}

}  // namespace faultline::story
