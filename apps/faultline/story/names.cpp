// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/story/names.hpp"

#include <array>
#include <cstring>

#include <spdlog/fmt/fmt.h>

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
    case EventKind::control:
      return "control call";
    case EventKind::wait:
      return "wait";
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
    case Rule::full_window:
      return "window that stays full";
    case Rule::cut_window:
      return "window that stays cut";
    case Rule::paced_queue:
      return "queue that never empties";
  }
  return "";
}

std::string_view name_of(record::ControlCall call) {
  using record::ControlCall;
  switch (call) {
    case ControlCall::open_device:
      return "open device";
    case ControlCall::create_cq:
      return "create CQ";
    case ControlCall::destroy_cq:
      return "destroy CQ";
    case ControlCall::create_qp:
      return "create QP";
    case ControlCall::modify_qp:
      return "modify QP";
    case ControlCall::destroy_qp:
      return "destroy QP";
    case ControlCall::register_mr:
      return "register MR";
    case ControlCall::reregister_mr:
      return "reregister MR";
    case ControlCall::deregister_mr:
      return "deregister MR";
    case ControlCall::none:
    case ControlCall::count_:
      break;
  }
  return "";
}

std::string_view name_of_qp_state(uint8_t state) {
  constexpr std::array<std::string_view, 7> kNames{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < kNames.size() ? kNames[state] : "?";
}

std::string text_of_access(uint32_t access) {
  struct Right {
    uint32_t bit;
    std::string_view name;
  };
  // enum ibv_access_flags of rdma-core.
  constexpr std::array kRights{
      Right{1U << 0, "local write"},      Right{1U << 1, "remote write"},      Right{1U << 2, "remote read"},
      Right{1U << 3, "remote atomic"},    Right{1U << 4, "window bind"},       Right{1U << 5, "zero based"},
      Right{1U << 6, "on demand"},        Right{1U << 7, "huge pages"},        Right{1U << 8, "flush global"},
      Right{1U << 9, "flush persistent"}, Right{1U << 20, "relaxed ordering"},
  };
  std::string text;
  uint32_t left = access;
  const auto add = [&text](std::string_view name) { text.append(text.empty() ? "" : ", ").append(name); };
  for (const Right& right : kRights) {
    if ((access & right.bit) != 0) add(right.name);
    left &= ~right.bit;
  }
  if (left != 0) add(fmt::format("0x{:x}", left));
  return text.empty() ? "local read" : text;
}

namespace {

std::string about(const record::ControlRow& row) {
  using record::ControlCall;
  switch (row.call) {
    case ControlCall::create_cq:
      return fmt::format(" {} of {} entries", row.object, row.entries);
    case ControlCall::destroy_cq:
      return fmt::format(" {}", row.object);
    case ControlCall::create_qp:
      return row.object != 0 ? fmt::format(" 0x{:x}", row.object) : "";
    case ControlCall::destroy_qp:
      return fmt::format(" 0x{:x} in {}", row.object, name_of_qp_state(row.from_state));
    case ControlCall::modify_qp:
      return fmt::format(" 0x{:x}: {} to {}", row.object, name_of_qp_state(row.from_state),
                         name_of_qp_state(row.to_state));
    case ControlCall::register_mr:
    case ControlCall::reregister_mr:
    case ControlCall::deregister_mr:
      return fmt::format(" of {} B at 0x{:x}, lkey 0x{:x}: {}", row.length_bytes, row.address, row.object,
                         text_of_access(row.access));
    default:
      return "";
  }
}

}  // namespace

std::string text_of(const record::ControlRow& row) {
  std::string text = fmt::format("{}{}", name_of(row.call), about(row));
  if (row.error != 0) {
    const char* const name = strerrorname_np(row.error);
    text += fmt::format(": {}", name != nullptr ? name : std::to_string(row.error));
  }
  return text;
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
