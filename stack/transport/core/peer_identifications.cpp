// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/core/peer_identifications.hpp"

#include <algorithm>
#include <utility>

namespace faultline::transport {
namespace {

constexpr TimeNs kNsPerMs = 1'000'000;

/// Identifications of a window after `idle_ns` without packets.
uint32_t window_after(TimeNs idle_ns) {
  using Table = PeerIdentifications;
  const TimeNs growth = std::min<TimeNs>(idle_ns / kNsPerMs, Table::kWidestWindow - Table::kRunningWindow);
  return Table::kRunningWindow + static_cast<uint32_t>(growth);
}

/// True once the window is as wide as it can be.
bool is_past(TimeNs last_ns, TimeNs now) {
  return window_after(now - last_ns) == PeerIdentifications::kWidestWindow;
}

}  // namespace

bool PeerIdentifications::Counter::leads_to(uint16_t identification, TimeNs now) const {
  const auto distance = static_cast<uint16_t>(identification - last + kOvertaken);
  return is_known && distance < window_after(now - last_ns);
}

void PeerIdentifications::Counter::advance_to(uint16_t identification, TimeNs now) {
  if (static_cast<int16_t>(identification - last) < 0) return;  // overtaken by another one
  last = identification;
  last_ns = now;
}

/// Returns true if the packet is in the window of one of the peer's counters, and advances that counter.
bool PeerIdentifications::follows(Peer& peer, uint16_t identification, TimeNs now) {
  if (peer.confirmed.leads_to(identification, now)) {
    // An old candidate has a wide window, which would leave fewer bits of the ICRC for the rest of the
    // traffic.
    if (is_past(peer.candidate.last_ns, now)) peer.candidate = {};
  } else {
    if (!peer.candidate.leads_to(identification, now)) return false;
    std::swap(peer.confirmed, peer.candidate);
  }
  peer.confirmed.advance_to(identification, now);
  return true;
}

PeerIdentifications::Peer* PeerIdentifications::find(Addresses addresses) {
  Set& set = sets_[set_of(addresses)];
  const auto at = std::ranges::find(set, addresses, &Peer::addresses);
  return at == set.end() ? nullptr : &*at;
}

/// Returns the place for a new peer: a free one, or that of the peer with the oldest packet among those that
/// are not confirmed, or were silent until their window was as wide as it can be. nullptr if there is none.
PeerIdentifications::Peer* PeerIdentifications::replaceable(Set& set, TimeNs now) {
  const auto last_ns = [](const Peer& peer) {
    return std::max(peer.confirmed.last_ns, peer.candidate.last_ns);
  };
  Peer* oldest = nullptr;
  for (Peer& peer : set) {
    if (peer.addresses == 0) return &peer;
    if (peer.confirmed.is_known && !is_past(peer.confirmed.last_ns, now)) continue;
    if (oldest == nullptr || last_ns(peer) < last_ns(*oldest)) oldest = &peer;
  }
  return oldest;
}

bool PeerIdentifications::accept(Addresses addresses, uint16_t identification, TimeNs now) {
  Peer* peer = find(addresses);
  if (peer != nullptr && follows(*peer, identification, now)) return true;
  if (peer == nullptr) {
    peer = replaceable(sets_[set_of(addresses)], now);
    if (peer == nullptr) return false;
    *peer = {.addresses = addresses, .confirmed = {}, .candidate = {}};
  }
  peer->candidate = {.last_ns = now, .last = identification, .is_known = true};
  return false;
}

void PeerIdentifications::note_accepted(Addresses addresses, uint16_t identification, TimeNs now) {
  if (Peer* const peer = find(addresses)) static_cast<void>(follows(*peer, identification, now));
}

}  // namespace faultline::transport
