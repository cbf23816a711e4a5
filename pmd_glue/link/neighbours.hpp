// SPDX-License-Identifier: BSD-3-Clause
// Neighbour cache: the MAC addresses of IP addresses on the link. One cache serves ARP (RFC 826) and IPv6
// neighbour discovery (RFC 4861), as a state machine over bytes and a time. Its size is bounded, and it
// allocates nothing after construction. Owner: the engine's thread.
//
// Neither protocol authenticates a sender. So an unsolicited message that moves a known neighbour is not
// believed at once. The cache first sends unicast requests to the known address; it broadcasts only if that
// address is silent. An entry made for a peer's request never evicts an entry that this device has requested.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "pmd_glue/link/address_table.hpp"
#include "stack/base/time.hpp"

namespace faultline::glue {

enum class NeighbourState : uint8_t {
  absent,
  incomplete,  ///< requested, no reply yet
  reachable,
  failed  ///< all requests sent, no reply
};

class NeighbourCache {
 public:
  static constexpr size_t kEntries = 256;
  /// A reply is valid for this long; the next use sends a new request (RFC 1122, 2.3.2.1).
  static constexpr TimeNs kReachableNs = 60'000'000'000;
  /// A reply is not doubted for this long, so that forged messages cause few requests.
  static constexpr TimeNs kBeyondDoubtNs = 1'000'000'000;

  /// `own` outlives the cache.
  explicit NeighbourCache(const AddressTable& own) : own_(own) {}

  /// Handles an ARP frame. Returns the length of the reply written to `reply`, or 0 for none.
  [[nodiscard]] size_t on_arp(std::span<const uint8_t> frame, TimeNs now, std::span<uint8_t> reply);
  /// Handles a neighbour solicitation or advertisement. Returns as on_arp() does.
  [[nodiscard]] size_t on_neighbour_message(const wire::NeighbourMessage& message, TimeNs now,
                                            std::span<uint8_t> reply);

  /// Returns the state at `now`; sets `mac` if it is reachable.
  [[nodiscard]] NeighbourState lookup(const wire::Gid& neighbour, TimeNs now, wire::MacAddress& mac) const;

  /// Starts requests for an address on the link, unless they are under way or it is reachable. Without a
  /// reply the entry fails 10 s later.
  void resolve(const wire::Gid& neighbour, TimeNs now);

  /// A turn of a caller that waits for an address; `is_asked` is false in its first one. Returns reachable
  /// with `mac`, incomplete, or failed. An entry that expires while the caller waits is asked for again.
  [[nodiscard]] NeighbourState wait_for(const wire::Gid& neighbour, TimeNs now, bool& is_asked,
                                        wire::MacAddress& mac);

  /// Writes the next due request to `request` and returns its length; 0 if none is due. `ipv6` is set to
  /// whether the request is IPv6 neighbour discovery.
  [[nodiscard]] size_t poll(TimeNs now, std::span<uint8_t> request, bool& ipv6);

  /// Time at which poll() has work; kNever if no reply is awaited.
  [[nodiscard]] TimeNs next_deadline() const { return next_deadline_; }

 private:
  struct Entry {
    wire::Gid gid;
    NeighbourState state = NeighbourState::absent;
    uint8_t requests_sent = 0;
    bool wanted = false;  ///< this device has requested it
    /// reachable, but another MAC address was announced: the known one is being queried
    bool doubted = false;
    wire::MacAddress mac;
    TimeNs updated = 0;   ///< time of the last confirmation, or of the first request
    TimeNs deadline = 0;  ///< of the next request, if incomplete or doubted
  };
  [[nodiscard]] Entry* find(const wire::Gid& gid);
  [[nodiscard]] const Entry* find(const wire::Gid& gid) const;
  /// Returns an entry for a new neighbour; nullptr if every entry matters more.
  [[nodiscard]] Entry* claim(const wire::Gid& gid, bool wanted);
  void learn(Entry& entry, const wire::MacAddress& mac, TimeNs now);
  /// Handles an announced MAC address of a neighbour. `asker`: the message was a request to this device, so
  /// an unknown sender is added.
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
