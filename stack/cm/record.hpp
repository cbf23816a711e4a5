// SPDX-License-Identifier: BSD-3-Clause
// What a manager keeps of one connection or service request.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

#include "stack/cm/manager.hpp"

namespace faultline::cm {

/// How a peer names what it asked for.
struct PeerKey {
  wire::Gid gid;
  uint64_t ca_guid = 0;  ///< of a REQ
  uint32_t id = 0;       ///< its communication ID, request ID or QPN
  bool sidr = false;
  friend bool operator==(const PeerKey&, const PeerKey&) = default;
};
struct PeerKeyHash {
  [[nodiscard]] size_t operator()(const PeerKey& key) const {
    uint64_t hash = key.ca_guid ^ (uint64_t{key.id} << 1 | (key.sidr ? 1 : 0));
    for (const uint8_t byte : key.gid.bytes) hash = (hash ^ byte) * 0x100000001b3;  // FNV-1a
    return hash;
  }
};

/// A message that is sent until it is answered: `retries` times more after the first, each after a period,
/// and earlier ones in between, ever further apart.
struct Retry {
  uint64_t period_ns = 0;
  uint32_t retries_left = 0;
  TimeNs period_end = kNever;
  TimeNs next_early = kNever;
  uint64_t early_gap_ns = 0;
  [[nodiscard]] TimeNs deadline() const { return std::min(period_end, next_early); }
};

struct Record {
  Id id = 0;
  State state = State::closed;
  bool active = false;    ///< this side asked
  bool orphan = false;    ///< its owner has destroyed it
  bool awaiting = false;  ///< counts in its listener's backlog
  uint64_t user = 0;
  Id listener = 0;
  uint64_t service_id = 0;
  uint64_t transaction_id = 0;
  PeerKey peer;     ///< where it is indexed by the peer's ID; id 0: nowhere
  PeerKey peer_qp;  ///< likewise by the peer's QPN
  uint32_t remote_id = 0;
  uint64_t remote_guid = 0;
  ExchangeTiming timing{};
  uint64_t response_ns = 0;  ///< within which the peer answers
  QpSettings qp;
  Retry retry;
  TimeNs deadline = kNever;  ///< as it is in the manager's queue
  bool has_last = false;     ///< what is sent again
  wire::CmAttribute last_attribute = wire::CmAttribute::req;
  wire::MadBytes last{};
};

/// 4.096 us * 2^code (IBA 12.7.4), codes of five bits.
[[nodiscard]] constexpr uint64_t ns_of_code(uint8_t code) {
  return uint64_t{4096} << (code & 0x1f);
}

}  // namespace faultline::cm
