// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/shared/counters.hpp"

#include <array>

namespace faultline::transport {

std::string_view name_of(DropReason reason) {
  static constexpr std::array<std::string_view, static_cast<size_t>(DropReason::count_)> kNames = {
      "unknown_qpn",
      "wrong_service",
      "qp_state",
      "pkey",
      "qkey",
      "source_address",
      "path_mtu",
      "payload_rule",
      "duplicate",
      "out_of_sequence",
      "no_receive_wqe",
      "park_full",
      "parked_flushed",
      "unexpected_response",
      "stale_ack",
      "ud_too_long",
      "access",
      "cnp",
      "unsupported",
      "no_shared_queue",
      "multicast_group",
      "stale_request",
      "own_multicast",
      "destination_address"};
  return reason < DropReason::count_ ? kNames[static_cast<size_t>(reason)] : "unknown";
}

}  // namespace faultline::transport
