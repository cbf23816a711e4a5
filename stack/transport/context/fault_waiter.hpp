// SPDX-License-Identifier: BSD-3-Clause
// What waits for a page fault: the transport's meaning of the token that the pager returns unread.
#pragma once

#include <cstdint>

#include "odp/regions/memory_access.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::transport {

/// Which part of a QP waits.
enum class FaultRole : uint8_t { requester = 0, parked = 1, read_job = 2 };

/// The generation makes a late resolution harmless: a QP that has moved on ignores an older number.
struct FaultWaiter {
  uint32_t qpn = 0;
  FaultRole role = FaultRole::requester;
  uint32_t generation = 0;

  friend constexpr bool operator==(const FaultWaiter&, const FaultWaiter&) = default;

  /// From the lowest bit: QPN (24 bits), role (8), generation (32).
  [[nodiscard]] constexpr odp::WaiterToken pack() const {
    return {uint64_t{generation} << kGenerationShift | uint64_t{static_cast<uint8_t>(role)} << kRoleShift |
            qpn};
  }
  [[nodiscard]] static constexpr FaultWaiter unpack(odp::WaiterToken token) {
    return {.qpn = static_cast<uint32_t>(token.bits) & wire::kQpnMask,
            .role = static_cast<FaultRole>(static_cast<uint8_t>(token.bits >> kRoleShift)),
            .generation = static_cast<uint32_t>(token.bits >> kGenerationShift)};
  }

 private:
  static constexpr unsigned kRoleShift = 24;
  static constexpr unsigned kGenerationShift = 32;
};

}  // namespace faultline::transport
