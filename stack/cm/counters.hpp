// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "stack/wire/mad/mad.hpp"

namespace faultline::cm {

/// Why a message of the communication manager went no further, by rung of the guard ladder.
enum class DropReason : uint8_t {
  source_qpn,    ///< not from a QP1
  unknown_id,    ///< no such connection
  wrong_peer,    ///< of another address, or another connection's
  wrong_state,   ///< not expected, or repeated
  backlog,       ///< the listener has as many requests as it wants
  no_resources,  ///< out of IDs or memory
  rate,          ///< more requests, or messages of nobody known, than are answered
  count_
};
[[nodiscard]] std::string_view name_of(DropReason reason);

struct ManagerCounters {
  std::array<uint64_t, static_cast<size_t>(wire::MadError::count_)> mad_errors{};
  std::array<uint64_t, static_cast<size_t>(DropReason::count_)> drops{};
  uint64_t received = 0, sent = 0;
  uint64_t sent_again = 0;
  uint64_t gave_up = 0;  ///< exchanges that nobody answered
  uint64_t stale = 0;    ///< connections that the peer has forgotten
};

}  // namespace faultline::cm
