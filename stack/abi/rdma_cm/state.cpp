// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/rdma_cm/state.hpp"

#include <array>

namespace faultline::abi {

namespace {

constexpr auto kStates = static_cast<size_t>(IdState::count_);
constexpr auto kInputs = static_cast<size_t>(IdInput::count_);
constexpr IdState kWrong = IdState::count_;

using Row = std::array<IdState, kInputs>;

constexpr std::array<Row, kStates> make_transitions() {
  using enum IdState;
  std::array<Row, kStates> transitions{};
  for (Row& row : transitions)
    for (IdState& next : row) next = kWrong;
  const auto set = [&](IdState state, IdInput input, IdState next) {
    transitions[static_cast<size_t>(state)][static_cast<size_t>(input)] = next;
  };
  set(idle, IdInput::bind, bound);
  set(bound, IdInput::resolve_address, resolving_address);
  set(bound, IdInput::listen, listening);
  set(bound, IdInput::join, bound);
  set(resolving_address, IdInput::address_found, address_resolved);
  set(resolving_address, IdInput::address_lost, bound);
  set(address_resolved, IdInput::resolve_route, route_resolved);
  set(address_resolved, IdInput::join, address_resolved);
  set(route_resolved, IdInput::connect, connected);
  set(route_resolved, IdInput::join, route_resolved);
  // An accept answers a REQ or a REP; the connection manager checks which one is valid.
  set(connected, IdInput::accept, connected);
  set(connected, IdInput::reject, connected);
  set(connected, IdInput::join, connected);
  set(connected, IdInput::disconnected, disconnected);
  return transitions;
}

constexpr auto kTransitions = make_transitions();

}  // namespace

std::optional<IdState> transition(IdState state, IdInput input) {
  const IdState next = kTransitions[static_cast<size_t>(state)][static_cast<size_t>(input)];
  if (next == kWrong) return std::nullopt;
  return next;
}

}  // namespace faultline::abi
