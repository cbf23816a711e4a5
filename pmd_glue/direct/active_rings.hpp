// SPDX-License-Identifier: BSD-3-Clause
// The rings of one receiver, by the seat of the other end. Receiving looks at the active rings only. A ring
// without frames for long is armed and no longer active, until its other end rings in the receiver's inbox.
// So the cost of a turn follows the rings in use, not all of them. Owner: one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "pmd_glue/direct/shared_ring.hpp"
#include "pmd_glue/wires/inbox.hpp"

namespace faultline::glue {

class ActiveRings {
 public:
  /// Looks in a row without a frame after which a ring is armed.
  static constexpr uint32_t kIdleLooks = 1024;

  explicit ActiveRings(Inbox& inbox) : inbox_(&inbox) {}
  /// Another page takes the place of the inbox.
  void use_inbox(Inbox& inbox) { inbox_ = &inbox; }

  /// Adds the ring of a seat, which has none; it is active. The ring lives until remove().
  void add(uint32_t seat, SharedRing& ring);
  void remove(uint32_t seat);
  [[nodiscard]] bool is_active(uint32_t seat) const { return places_[seat].active; }
  void activate(uint32_t seat);
  [[nodiscard]] size_t active() const { return active_.size(); }

  [[nodiscard]] bool has_frames() const {
    return inbox_->has_rings() ||
           std::ranges::any_of(active_, [this](uint16_t seat) { return places_[seat].ring->has_frames(); });
  }

  /// Calls `take(seat)` for each active ring until one returns false; it receives from the ring and returns
  /// whether the caller has room for more. Each round begins with another ring, so that a busy one does not
  /// keep the others waiting.
  template <typename Take>
  void receive(Take take) {
    if (inbox_->has_rings()) inbox_->take_rings([this](uint32_t seat) { activate(seat); });
    if (active_.empty()) return;
    if (++next_ >= active_.size()) next_ = 0;
    size_t place = next_;
    for (size_t left = active_.size(); left != 0; --left) {
      if (place >= active_.size()) place = 0;
      const uint16_t seat = active_[place];
      Place& looked = places_[seat];
      const uint64_t moved = looked.ring->moved();
      const bool has_room = take(seat);
      if (looked.ring->moved() != moved)
        looked.idle_looks = 0;
      else if (is_idle(looked) && deactivate(place))
        continue;  // another ring has taken the place
      if (!has_room) return;
      ++place;
    }
  }

  /// From arm() to disarm() every other end rings after it has sent frames, and wakes the receiver. The
  /// caller receives once more after arm().
  void arm(WakeFor what = WakeFor::all_frames);
  void disarm();

 private:
  struct Place {
    SharedRing* ring = nullptr;
    uint32_t idle_looks = 0;
    bool active = false;
  };

  [[nodiscard]] bool is_idle(Place& place) const {
    return armed_ ? !place.ring->has_frames() : ++place.idle_looks >= kIdleLooks;
  }
  [[nodiscard]] bool deactivate(size_t place);

  Inbox* inbox_;
  std::array<Place, Inbox::kSeats> places_{};
  std::vector<uint16_t> active_;
  size_t next_ = 0;
  bool armed_ = false;
};

}  // namespace faultline::glue
