// SPDX-License-Identifier: BSD-3-Clause
// State table of an rdma_cm identifier: which command or event is valid in which state.
#pragma once

#include <cstdint>
#include <optional>

namespace faultline::abi {

enum class IdState : uint8_t {
  idle,
  bound,
  resolving_address,
  address_resolved,
  route_resolved,
  listening,
  connected,  ///< or connecting: from connect, or from an incoming request, on
  disconnected,
  count_
};

enum class IdInput : uint8_t {
  bind,
  resolve_address,
  address_found,
  address_lost,
  resolve_route,
  listen,
  connect,
  accept,
  reject,
  join,
  disconnected,
  count_
};

/// Returns the next state, or nullopt if the input is invalid in `state`.
[[nodiscard]] std::optional<IdState> transition(IdState state, IdInput input);

}  // namespace faultline::abi
