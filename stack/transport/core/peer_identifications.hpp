// SPDX-License-Identifier: BSD-3-Clause
// The IPv4 identifications that peers count, for a port whose socket hides them. The ICRC covers the
// identification, so a packet is right only for one of 65536; this states which of them may be accepted.
//
// Linux rxe numbers its packets from a counter of each pair of addresses (__ip_select_ident): each packet
// adds 1, and the first one after an idle time adds a random number below its jiffies, at most 1000 a second.
// Others count alike without the random number, or send one identification always. So a packet must have an
// identification in a window after the last one. A window of w identifications leaves 32 - log2(w) bits of
// the ICRC.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

/// A fixed table of peers. Owner: the core's thread.
class PeerIdentifications {
 public:
  /// Identifications that are accepted while a peer sends: a few before the last one, since packets overtake
  /// each other, the last one itself, and those after it.
  static constexpr uint32_t kRunningWindow = 64;
  static constexpr uint32_t kOvertaken = 16;
  /// The window grows by one a millisecond without packets, up to this: 19 bits, reached after 8.1 s.
  static constexpr uint32_t kWidestWindow = 8192;
  /// Peers that share a place in the table.
  static constexpr size_t kWays = 4;
  static constexpr size_t kSets = 64;

  /// The source address in the upper half, the destination's in the lower.
  using Addresses = uint64_t;
  /// Returns a path's place in the table, below kSets.
  [[nodiscard]] static size_t set_of(Addresses addresses) {
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;  // Fibonacci hashing: 2^64 divided by the golden ratio
    return static_cast<size_t>(addresses * kGolden >> 58);
  }

  /// Decides about a packet whose ICRC is right with `identification`. Returns true if it is accepted.
  /// Otherwise it is a candidate: a later packet in the candidate's window is accepted.
  [[nodiscard]] bool accept(Addresses addresses, uint16_t identification, TimeNs now);
  /// Notes a packet that is accepted for another reason. A peer that has no packet accepted by its window is
  /// not noted.
  void note_accepted(Addresses addresses, uint16_t identification, TimeNs now);

 private:
  /// A counter that packets show.
  struct Counter {
    TimeNs last_ns = 0;
    uint16_t last = 0;
    bool is_known = false;

    [[nodiscard]] bool leads_to(uint16_t identification, TimeNs now) const;
    void advance_to(uint16_t identification, TimeNs now);
  };
  /// A packet outside of both windows replaces the candidate, never the confirmed counter. A packet in the
  /// candidate's window makes it the confirmed one, and the confirmed one the candidate.
  struct Peer {
    Addresses addresses = 0;  ///< 0: free
    Counter confirmed;
    Counter candidate;
  };
  using Set = std::array<Peer, kWays>;

  [[nodiscard]] static bool follows(Peer& peer, uint16_t identification, TimeNs now);
  [[nodiscard]] Peer* find(Addresses addresses);
  [[nodiscard]] static Peer* replaceable(Set& set, TimeNs now);

  std::array<Set, kSets> sets_{};
};

}  // namespace faultline::transport
