// SPDX-License-Identifier: BSD-3-Clause
#include "stack/trouble/names.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "stack/trouble/calls.hpp"
#include "stack/trouble/options.hpp"

namespace faultline::trouble {
namespace {

struct Name {
  std::string_view name;
  uint32_t number;
};

constexpr auto kErrors = std::to_array<Name>({
    {"EPERM", EPERM},
    {"ENOENT", ENOENT},
    {"EINTR", EINTR},
    {"EIO", EIO},
    {"ENODEV", ENODEV},
    {"EAGAIN", EAGAIN},
    {"ENOMEM", ENOMEM},
    {"EACCES", EACCES},
    {"EFAULT", EFAULT},
    {"EBUSY", EBUSY},
    {"EINVAL", EINVAL},
    {"EMFILE", EMFILE},
    {"ENOSPC", ENOSPC},
    {"ENOSYS", ENOSYS},
    {"EPROTO", EPROTO},
    {"EOPNOTSUPP", EOPNOTSUPP},
    {"EADDRINUSE", EADDRINUSE},
    {"EADDRNOTAVAIL", EADDRNOTAVAIL},
    {"ENETUNREACH", ENETUNREACH},
    {"ECONNRESET", ECONNRESET},
    {"ETIMEDOUT", ETIMEDOUT},
    {"ECONNREFUSED", ECONNREFUSED},
    {"EHOSTUNREACH", EHOSTUNREACH},
});

/// ibv_wc_status; a success is no failure, and RDD is not supported.
constexpr auto kStatuses = std::to_array<Name>({
    {"IBV_WC_LOC_LEN_ERR", 1},
    {"IBV_WC_LOC_QP_OP_ERR", 2},
    {"IBV_WC_LOC_PROT_ERR", 4},
    {"IBV_WC_MW_BIND_ERR", 6},
    {"IBV_WC_BAD_RESP_ERR", 7},
    {"IBV_WC_LOC_ACCESS_ERR", 8},
    {"IBV_WC_REM_INV_REQ_ERR", 9},
    {"IBV_WC_REM_ACCESS_ERR", 10},
    {"IBV_WC_REM_OP_ERR", 11},
    {"IBV_WC_RETRY_EXC_ERR", 12},
    {"IBV_WC_RNR_RETRY_EXC_ERR", 13},
    {"IBV_WC_REM_ABORT_ERR", 16},
    {"IBV_WC_FATAL_ERR", 19},
    {"IBV_WC_RESP_TIMEOUT_ERR", 20},
    {"IBV_WC_GENERAL_ERR", 21},
});

/// ibv_event_type of the port and the device, and of a CQ and an SRQ. Those of a QP have causes of their own.
constexpr auto kEvents = std::to_array<Name>({
    {"IBV_EVENT_DEVICE_FATAL", 8},
    {"IBV_EVENT_PORT_ACTIVE", 9},
    {"IBV_EVENT_PORT_ERR", 10},
    {"IBV_EVENT_LID_CHANGE", 11},
    {"IBV_EVENT_PKEY_CHANGE", 12},
    {"IBV_EVENT_SM_CHANGE", 13},
    {"IBV_EVENT_CLIENT_REREGISTER", 17},
    {"IBV_EVENT_GID_CHANGE", 18},
    {"IBV_EVENT_CQ_ERR", 0},
    {"IBV_EVENT_SRQ_LIMIT_REACHED", 15},
});

/// Statuses of a posted receive that a message fills (IBA 11.6.2), by number.
constexpr auto kReceiveStatuses = std::to_array<uint32_t>({1, 2, 4, 19, 21});

/// rdma_cm_event_type. The others follow from what the program and its peer do.
constexpr auto kCmEvents = std::to_array<Name>({{"RDMA_CM_EVENT_ADDR_CHANGE", 14}});

struct ActionWord {
  std::string_view key;
  std::string_view word;
  Action::Kind kind;
};
constexpr auto kActionWords = std::to_array<ActionWord>({
    {"call", "delay", Action::Kind::delay_call},      {"packet", "lose", Action::Kind::lose},
    {"packet", "duplicate", Action::Kind::duplicate}, {"packet", "corrupt", Action::Kind::corrupt},
    {"packet", "mark", Action::Kind::mark},           {"packet", "delay", Action::Kind::delay},
    {"packet", "reorder", Action::Kind::reorder},     {"packet", "partition", Action::Kind::partition},
    {"packet", "rate", Action::Kind::rate},           {"packet", "slow", Action::Kind::slow},
    {"inject", "cnp", Action::Kind::inject_cnp},      {"inject", "rnr", Action::Kind::inject_rnr},
    {"inject", "nak", Action::Kind::inject_nak},      {"memory", "page_out", Action::Kind::page_out},
    {"fault", "fail", Action::Kind::fail_fault},      {"fault", "delay", Action::Kind::delay_fault},
    {"poll", "nothing", Action::Kind::poll_nothing},  {"poll", "few", Action::Kind::poll_few},
    {"poll", "shuffle", Action::Kind::shuffle},       {"qp", "error", Action::Kind::fail_qp},
    {"link", "down", Action::Kind::link_down},        {"link", "up", Action::Kind::link_up},
    {"cq", "overflow", Action::Kind::overflow_cq},    {"wake", "spurious", Action::Kind::wake},
    {"wake", "late", Action::Kind::moderate},         {"device", "absent", Action::Kind::hide_device},
    {"device", "gone", Action::Kind::remove_device},
});

template <size_t kCount>
const Name* find(const std::array<Name, kCount>& names, std::string_view name) {
  const auto found = std::ranges::find(names, name, &Name::name);
  return found == names.end() ? nullptr : &*found;
}

template <size_t kCount>
std::string read_name(const std::array<Name, kCount>& names, std::string_view value, Action::Kind kind,
                      Action& action) {
  const Name* const found = find(names, value);
  if (found == nullptr)
    return fmt::format("\"{}\" is unknown; known here: {}, ... {}", value, names.front().name,
                       names.back().name);
  action.kind = kind;
  action.number = found->number;
  return {};
}

/// Reasons of a REJ (IBA 12.6.7.2, table 101), those of wire::RejectReason among them.
constexpr auto kReasons = std::to_array<Name>({
    {"no_qp", 1},
    {"no_eec", 2},
    {"no_resources", 3},
    {"timeout", 4},
    {"unsupported", 5},
    {"invalid_communication_id", 6},
    {"invalid_communication_instance", 7},
    {"invalid_service_id", 8},
    {"invalid_transport", 9},
    {"stale_connection", 10},
    {"rdc_does_not_exist", 11},
    {"invalid_gid", 12},
    {"invalid_lid", 13},
    {"invalid_sl", 14},
    {"invalid_traffic_class", 15},
    {"invalid_hop_limit", 16},
    {"invalid_packet_rate", 17},
    {"invalid_alternate_gid", 18},
    {"invalid_alternate_lid", 19},
    {"invalid_alternate_sl", 20},
    {"invalid_alternate_traffic_class", 21},
    {"invalid_alternate_hop_limit", 22},
    {"invalid_alternate_packet_rate", 23},
    {"port_and_cm_redirect", 24},
    {"port_redirect", 25},
    {"invalid_mtu", 26},
    {"insufficient_responder_resources", 27},
    {"consumer", 28},
    {"invalid_rnr_retry", 29},
    {"duplicate_communication_id", 30},
    {"invalid_class_version", 31},
    {"invalid_flow_label", 32},
    {"invalid_alternate_flow_label", 33},
    {"vendor_option_not_supported", 35},
});

/// The keys of `do` of which a table has one.
constexpr std::string_view kMainKeys =
    "errno, status, packet, inject, memory, fault, poll, reject, event, qp, link, cq, wake, device, "
    "cm_event, call";

std::string read_word(const std::string& key, const std::string& value, Action& action) {
  for (const ActionWord& word : kActionWords) {
    if (word.key != key || word.word != value) continue;
    action.kind = word.kind;
    return {};
  }
  std::string known;
  for (const ActionWord& word : kActionWords)
    if (word.key == key) known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", word.word);
  if (known.empty()) return fmt::format("{}: unknown key; known here: {}", key, kMainKeys);
  return fmt::format("{}: \"{}\" is unknown; known here: {}", key, value, known);
}

/// The event's object, which the event of the action must concern, decides its kind.
std::string read_event(std::string_view name, Action& action) {
  constexpr uint32_t kCqError = 0;
  constexpr uint32_t kSrqLimitReached = 15;
  std::string wrong = read_name(kEvents, name, Action::Kind::raise_event, action);
  if (!wrong.empty()) return wrong;
  if (action.number == kCqError) action.kind = Action::Kind::raise_cq_event;
  if (action.number == kSrqLimitReached) action.kind = Action::Kind::raise_srq_event;
  return {};
}

bool any_release(const Condition& condition) {
  if (condition.kind == Condition::Kind::event)
    return condition.event == EventKind::call && is_release(condition.name);
  return std::ranges::any_of(condition.parts, any_release);
}

}  // namespace

std::string read_action(const nlohmann::ordered_json& table, Action& action) {
  action = {};
  action.text = table.dump();
  std::string first;
  for (const auto& [key, value] : table.items()) {
    if (is_option(key)) continue;
    if (!first.empty()) return fmt::format("{} and {} exclude each other", first, key);
    first = key;
    if (!value.is_string()) return fmt::format("{}: a text is expected", key);
    const auto text = value.get<std::string>();
    std::string wrong;
    if (key == "errno")
      wrong = read_name(kErrors, text, Action::Kind::fail_call, action);
    else if (key == "status")
      wrong = read_name(kStatuses, text, Action::Kind::fail_send, action);
    else if (key == "event")
      wrong = read_event(text, action);
    else if (key == "cm_event")
      wrong = read_name(kCmEvents, text, Action::Kind::raise_cm_event, action);
    else if (key == "reject")
      wrong = read_name(kReasons, text, Action::Kind::reject, action);
    else
      wrong = read_word(key, text, action);
    if (!wrong.empty()) return wrong;
  }
  if (first.empty()) return fmt::format("needs one of {}", kMainKeys);
  return read_options(table, action);
}

std::string make_of_receive(Action& action) {
  if (std::ranges::find(kReceiveStatuses, action.number) == kReceiveStatuses.end())
    return "status: not one of a receive; known here: IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_QP_OP_ERR, "
           "IBV_WC_LOC_PROT_ERR, IBV_WC_FATAL_ERR, IBV_WC_GENERAL_ERR";
  action.kind = Action::Kind::fail_receive;
  return {};
}

std::string fit_to_event(Exact& exact) {
  if (exact.event != "receive" || exact.action.kind != Action::Kind::fail_send) return {};
  return make_of_receive(exact.action);
}

std::string why_illegal(const Action& action, const Condition& when) {
  if (action.kind == Action::Kind::fail_call && any_release(when))
    return "a call that releases an object does not fail on a real device";
  if (action.kind == Action::Kind::corrupt_payload)
    return "a real device finds a changed payload by the ICRC";
  return {};
}

}  // namespace faultline::trouble
