// SPDX-License-Identifier: BSD-3-Clause
// How far an rdma_cm identifier has come, as a table: which command or event is right in which state.
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
  connected,  ///< or on the way there: from connect, or from the request that came, on
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

/// The state that follows, or nothing where the input is wrong in this one.
[[nodiscard]] std::optional<IdState> transition(IdState state, IdInput input);

}  // namespace faultline::abi
