// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/shared/counters.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace faultline::transport {
namespace {

struct ReasonText {
  DropReason reason;
  std::string_view name;
  std::string_view help;
};

constexpr ReasonText kReasons[] = {
    {DropReason::unknown_qpn, "unknown_qpn", "no QP has the destination QPN"},
    {DropReason::wrong_service, "wrong_service", "the opcode is of another transport service than the QP"},
    {DropReason::qp_state, "qp_state", "the QP's state allows no such packet"},
    {DropReason::pkey, "pkey", "the P_Key does not match"},
    {DropReason::qkey, "qkey", "the Q_Key of a datagram does not match"},
    {DropReason::source_address, "source_address", "the source address is not the peer's"},
    {DropReason::path_mtu, "path_mtu", "the payload is longer than the path MTU"},
    {DropReason::payload_rule, "payload_rule", "the payload's length breaks the rule of its opcode"},
    {DropReason::duplicate, "duplicate", "a request came a second time and cannot be answered again"},
    {DropReason::out_of_sequence, "out_of_sequence", "a request came behind a gap and was not kept"},
    {DropReason::no_receive_wqe, "no_receive_wqe", "no receive work request is posted"},
    {DropReason::park_full, "park_full", "no room to park a packet until its page is resident"},
    {DropReason::parked_flushed, "parked_flushed", "the QP left RTS while the packet was parked"},
    {DropReason::unexpected_response, "unexpected_response", "a response that answers no request"},
    {DropReason::stale_ack, "stale_ack", "an acknowledgement of what is acknowledged already"},
    {DropReason::ud_too_long, "ud_too_long", "a datagram is longer than the posted receive"},
    {DropReason::access, "access", "an unreliable request without the right to that memory"},
    {DropReason::cnp, "cnp", "a malformed congestion notification packet"},
    {DropReason::unsupported, "unsupported", "an operation that the device does not have"},
    {DropReason::no_shared_queue, "no_shared_queue",
     "an XRC packet names no shared receive queue of the domain"},
    {DropReason::multicast_group, "multicast_group", "no QP of the core is in the multicast group"},
    {DropReason::stale_request, "stale_request", "a request of an earlier connection of the same QPN"},
    {DropReason::own_multicast, "own_multicast", "the QP's own multicast, which it does not receive"},
    {DropReason::destination_address, "destination_address", "the destination address is not the QP's"},
};

constexpr bool is_in_order() {
  for (size_t i = 0; i < std::size(kReasons); ++i)
    if (static_cast<size_t>(kReasons[i].reason) != i) return false;
  return std::size(kReasons) == static_cast<size_t>(DropReason::count_);
}
static_assert(is_in_order());

}  // namespace

std::string_view name_of(DropReason reason) {
  return reason < DropReason::count_ ? kReasons[static_cast<size_t>(reason)].name : "unknown";
}

std::string_view help_of(DropReason reason) {
  return reason < DropReason::count_ ? kReasons[static_cast<size_t>(reason)].help : "";
}

void flatten(const CoreCounters& counters, std::span<uint64_t, kFlatCounters> values) {
  auto to = values.begin();
  for (const auto& row : kCoreCounterRows) *to++ = counters.*row.member;
  to = std::copy(counters.parse_errors.begin() + 1, counters.parse_errors.end(), to);
  std::ranges::copy(counters.drops, to);
}

}  // namespace faultline::transport
