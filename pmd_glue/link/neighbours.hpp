// SPDX-License-Identifier: BSD-3-Clause
// Who has which MAC address on the link: one cache for ARP (RFC 826) and IPv6 neighbour discovery (RFC 4861),
// as a state machine over bytes and a time. Bounded, and nothing is allocated after construction. Owner: the
// engine's thread.
//
// Neither protocol says who may speak for an address. So nobody who was not asked is believed at once that a
// known neighbour is elsewhere now: the one who was known is asked first, and all only where it is silent.
// And who asks us pushes out none of those whom we have asked for.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "pmd_glue/link/address_table.hpp"
#include "stack/base/time.hpp"

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
  static constexpr TimeNs kReachableNs = 60'000'000'000;
  /// And beyond doubt for this long, so that false words cost few questions.
  static constexpr TimeNs kBeyondDoubtNs = 1'000'000'000;

  /// `own` outlives the cache.
  explicit NeighbourCache(const AddressTable& own) : own_(own) {}

  /// Takes an ARP frame. Returns the length of the reply written to `reply`, or 0 for none.
  [[nodiscard]] size_t on_arp(std::span<const uint8_t> frame, TimeNs now, std::span<uint8_t> reply);
  /// Takes a neighbour solicitation or advertisement; the same.
  [[nodiscard]] size_t on_neighbour_message(const wire::NeighbourMessage& message, TimeNs now,
                                            std::span<uint8_t> reply);

  /// The state now; `mac` is set where it is reachable.
  [[nodiscard]] NeighbourState lookup(const wire::Gid& neighbour, TimeNs now, wire::MacAddress& mac) const;

  /// Starts asking for an address on the link, unless that is under way or it is reachable.
  void resolve(const wire::Gid& neighbour, TimeNs now);

  /// A turn of a caller that waits for an address; `is_asked` is false in its first one. Returns reachable
  /// with `mac`, incomplete, or failed. An entry that expires while the caller waits is asked for again.
  [[nodiscard]] NeighbourState wait_for(const wire::Gid& neighbour, TimeNs now, bool& is_asked,
                                        wire::MacAddress& mac);

  /// Writes the next question that is due to `request` and returns its length; 0 where none is due. `ipv6`
  /// says which kind it is.
  [[nodiscard]] size_t poll(TimeNs now, std::span<uint8_t> request, bool& ipv6);

  /// When poll() has something to do; kNever where nobody waits for an answer.
  [[nodiscard]] TimeNs next_deadline() const { return next_deadline_; }

 private:
  struct Entry {
    wire::Gid gid;
    NeighbourState state = NeighbourState::absent;
    uint8_t requests_sent = 0;
    bool wanted = false;   ///< we have asked for it
    bool doubted = false;  ///< reachable, but somebody says that it is elsewhere: the known address is asked
    wire::MacAddress mac;
    TimeNs updated = 0;   ///< when the address was learnt or the asking began
    TimeNs deadline = 0;  ///< of the next request, while incomplete or doubted
  };
  [[nodiscard]] Entry* find(const wire::Gid& gid);
  [[nodiscard]] const Entry* find(const wire::Gid& gid) const;
  /// A place for a neighbour; nullptr where each is taken by one that matters more.
  [[nodiscard]] Entry* claim(const wire::Gid& gid, bool wanted);
  void learn(Entry& entry, const wire::MacAddress& mac, TimeNs now);
  /// Takes somebody's word for where a neighbour is. `asker`: who asks us something is added where it is not
  /// known.
  void hear(const wire::Gid& gid, const wire::MacAddress& mac, bool asker, TimeNs now);
  void refresh_deadline();
  [[nodiscard]] size_t answer_solicitation(const wire::NeighbourMessage& message, TimeNs now,
                                           std::span<uint8_t> reply);
  void take_advertisement(const wire::NeighbourMessage& message, TimeNs now);
  [[nodiscard]] size_t write_question(const Entry& entry, std::span<uint8_t> request) const;

  const AddressTable& own_;
  std::array<Entry, kEntries> entries_{};
  TimeNs next_deadline_ = kNever;
};

}  // namespace faultline::glue
