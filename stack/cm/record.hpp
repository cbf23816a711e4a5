// SPDX-License-Identifier: BSD-3-Clause
// A manager's state for one connection or service request.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

#include "stack/cm/manager.hpp"

namespace faultline::cm {

/// The identity that a peer gives to its request.
struct PeerKey {
  wire::Gid gid;
  uint64_t ca_guid = 0;  ///< for a REQ
  uint32_t id = 0;       ///< the peer's communication ID, request ID or QPN
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

/// The schedule of a message that is transmitted until it is answered. After the first transmission there are
/// `retries` more, one per period. Early retransmissions occur within a period, at growing intervals.
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
  bool active = false;    ///< the local side sent the request
  bool orphan = false;    ///< the program has destroyed it
  bool awaiting = false;  ///< counted in its listener's backlog
  uint64_t user = 0;
  Id listener = 0;
  uint64_t service_id = 0;
  uint64_t transaction_id = 0;
  PeerKey peer;     ///< key in the index by the peer's ID; id 0: not indexed
  PeerKey peer_qp;  ///< key in the index by the peer's QPN; id 0: not indexed
  uint32_t remote_id = 0;
  uint64_t remote_guid = 0;
  ExchangeTiming timing{};
  uint64_t response_ns = 0;  ///< the peer's response time
  QpSettings qp;
  Retry retry;
  TimeNs deadline = kNever;  ///< the entry in the manager's queue
  bool has_last = false;     ///< `last` holds a message to retransmit
  wire::CmAttribute last_attribute = wire::CmAttribute::req;
  wire::MadBytes last{};
};

/// Decodes a five-bit time code: 4.096 us * 2^code (IBA 12.7.4).
[[nodiscard]] constexpr uint64_t ns_of_code(uint8_t code) {
  return uint64_t{4096} << (code & 0x1f);
}

}  // namespace faultline::cm
