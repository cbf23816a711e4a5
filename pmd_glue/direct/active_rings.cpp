// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/direct/active_rings.hpp"

#include <algorithm>

namespace faultline::glue {

void ActiveRings::add(uint32_t seat, SharedRing& ring) {
  places_[seat] = {.ring = &ring};
  // The other end may have sent and rung before this end knew the ring.
  activate(seat);
}

void ActiveRings::remove(uint32_t seat) {
  if (places_[seat].active) std::erase(active_, static_cast<uint16_t>(seat));
  places_[seat] = {};
}

void ActiveRings::activate(uint32_t seat) {
  // Any process of the wire may write to the inbox: the seat may have no ring here.
  if (seat >= places_.size() || places_[seat].ring == nullptr) return;
  Place& place = places_[seat];
  place.idle_looks = 0;
  if (!armed_) place.ring->disarm();
  if (place.active) return;
  place.active = true;
  active_.push_back(static_cast<uint16_t>(seat));
}

/// Stops looking at a ring. Returns false if a frame came meanwhile.
bool ActiveRings::deactivate(size_t at) {
  const uint16_t seat = active_[at];
  Place& place = places_[seat];
  place.ring->arm();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (place.ring->has_frames()) {
    place.idle_looks = 0;
    if (!armed_) place.ring->disarm();
    return false;
  }
  place.active = false;
  active_[at] = active_.back();
  active_.pop_back();
  return true;
}

void ActiveRings::arm(WakeFor what) {
  armed_ = true;
  inbox_->set_asleep(what);
  for (const uint16_t seat : active_) places_[seat].ring->arm();
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void ActiveRings::disarm() {
  armed_ = false;
  inbox_->set_awake();
  for (const uint16_t seat : active_) places_[seat].ring->disarm();
}

}  // namespace faultline::glue
