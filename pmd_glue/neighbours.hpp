// SPDX-License-Identifier: BSD-3-Clause
// Who has which MAC address on the link: an ARP cache (RFC 826) as a state machine over bytes and a time.
// Bounded, and nothing is allocated after construction. Owner: the engine's thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "stack/transport/types.hpp"
#include "stack/wire/link.hpp"

namespace faultline::glue {

enum class NeighbourState : uint8_t {
  absent,
  incomplete,  ///< asked, not answered yet
  reachable,
  failed  ///< asked as often as we ask, and no answer
};

class NeighbourCache {
 public:
  static constexpr size_t kEntries = 256;
  /// An answer is good for this long; then it is asked for again when next wanted (RFC 1122, 2.3.2.1).
  static constexpr transport::TimeNs kReachableNs = 60'000'000'000;

  /// `own_ip` in host order.
  NeighbourCache(const wire::MacAddress& own_mac, uint32_t own_ip);

  /// Takes an ARP frame. Returns the length of the reply written to `reply`, or 0 for none.
  [[nodiscard]] size_t on_arp(std::span<const uint8_t> frame, transport::TimeNs now,
                              std::span<uint8_t> reply);

  /// The state now; `mac` is set where it is reachable.
  [[nodiscard]] NeighbourState lookup(uint32_t ip, transport::TimeNs now, wire::MacAddress& mac) const;

  /// Starts asking for an address, unless that is under way or it is reachable.
  void resolve(uint32_t ip, transport::TimeNs now);

  /// Writes the next request that is due to `request` and returns its length; 0 where none is due.
  [[nodiscard]] size_t poll(transport::TimeNs now, std::span<uint8_t> request);

  /// When poll() has something to do; transport::kNever where nobody waits for an answer.
  [[nodiscard]] transport::TimeNs next_deadline() const { return next_deadline_; }

 private:
  struct Entry {
    uint32_t ip = 0;
    NeighbourState state = NeighbourState::absent;
    uint8_t requests_sent = 0;
    wire::MacAddress mac;
    transport::TimeNs updated = 0;   ///< when the address was learnt or the asking began
    transport::TimeNs deadline = 0;  ///< of the next request, while incomplete
  };
  [[nodiscard]] Entry* find(uint32_t ip);
  [[nodiscard]] const Entry* find(uint32_t ip) const;
  [[nodiscard]] Entry& claim(uint32_t ip);
  void learn(Entry& entry, const wire::MacAddress& mac, transport::TimeNs now);
  void refresh_deadline();

  const wire::MacAddress own_mac_;
  const uint32_t own_ip_;
  std::array<Entry, kEntries> entries_{};
  transport::TimeNs next_deadline_ = transport::kNever;
};

}  // namespace faultline::glue
