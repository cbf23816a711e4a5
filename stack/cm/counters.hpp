// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "stack/base/counter_row.hpp"
#include "stack/wire/mad/mad.hpp"

namespace faultline::cm {

/// Why the communication manager dropped a message, in the order of its checks.
enum class DropReason : uint8_t {
  source_qpn,    ///< not from a QP1
  unknown_id,    ///< no such connection
  wrong_peer,    ///< from another address, or for another connection
  wrong_state,   ///< unexpected in this state, or a duplicate
  backlog,       ///< the listener's backlog is full
  no_resources,  ///< out of IDs or memory
  rate,          ///< over the limit for new requests, or for replies to unknown peers
  count_
};
[[nodiscard]] std::string_view name_of(DropReason reason);

/// kManagerCounterRows describes each member.
struct ManagerCounters {
  uint64_t received = 0;
  uint64_t sent = 0;
  uint64_t sent_again = 0;
  uint64_t gave_up = 0;
  uint64_t stale = 0;
  std::array<uint64_t, static_cast<size_t>(wire::MadError::count_)> mad_errors{};
  std::array<uint64_t, static_cast<size_t>(DropReason::count_)> drops{};
};

inline constexpr CounterRow<ManagerCounters> kManagerCounterRows[] = {
    {"received", "messages", CounterKind::count, "messages of the connection manager received",
     &ManagerCounters::received},
    {"sent", "messages", CounterKind::count, "messages of the connection manager sent",
     &ManagerCounters::sent},
    {"sent_again", "messages", CounterKind::count, "messages sent again because no answer came",
     &ManagerCounters::sent_again},
    {"gave_up", "exchanges", CounterKind::count, "exchanges that the peer never answered",
     &ManagerCounters::gave_up},
    {"stale", "connections", CounterKind::count, "connections that the peer has forgotten",
     &ManagerCounters::stale},
};
static_assert(sizeof(ManagerCounters) == sizeof(ManagerCounters::mad_errors) +
                                             sizeof(ManagerCounters::drops) +
                                             std::size(kManagerCounterRows) * sizeof(uint64_t),
              "each member has a row");

}  // namespace faultline::cm
