// SPDX-License-Identifier: BSD-3-Clause
// Limits the frames that wait for ports which take none for now. Each port has a few reserved places, so that
// stopped programs use none of the others'. The rest is shared, up to a limit per port. The limits leave
// enough of the frame pool to receive with.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "apps/switch/stations.hpp"

namespace faultline::switching {

class WaitingRoom {
 public:
  static constexpr size_t kMostOwnPlaces = 128;
  static constexpr size_t kMostOfAPort = 1024;
  enum class Admission : uint8_t {
    admitted,
    port_full,  ///< the port's limit is reached
    all_full    ///< the shared places are used up, possibly by other ports
  };

  /// `pool_frames` is the number of buffers in the pool. Half of them may wait; half of these are the ports'
  /// own places.
  explicit WaitingRoom(size_t pool_frames) : pool_frames_(pool_frames) { set_ports(1); }

  /// Divides the places among so many ports. A port that has more frames than its new share keeps them.
  void set_ports(size_t ports) {
    own_places_ = std::clamp<size_t>(pool_frames_ / 4 / std::max<size_t>(ports, 1), 1, kMostOwnPlaces);
    const size_t own = own_places_ * std::max<size_t>(ports, 1);
    shared_places_ = pool_frames_ / 2 - std::min(pool_frames_ / 2, own);
    shared_used_ = 0;
    for (const size_t waiting : waiting_) shared_used_ += waiting - std::min(waiting, own_places_);
  }
  [[nodiscard]] size_t own_places() const { return own_places_; }

  /// Counts one frame for the port if it is admitted.
  [[nodiscard]] Admission admit(PortIndex port) {
    size_t& waiting = waiting_[port];
    if (waiting >= kMostOfAPort) return Admission::port_full;
    if (waiting >= own_places_) {
      if (shared_used_ >= shared_places_) return Admission::all_full;
      ++shared_used_;
    }
    ++waiting;
    return Admission::admitted;
  }
  /// Releases the places of `frames` frames of the port.
  void leave(PortIndex port, size_t frames) {
    size_t& waiting = waiting_[port];
    const size_t shared_before = waiting - std::min(waiting, own_places_);
    waiting -= std::min(waiting, frames);
    shared_used_ -= shared_before - (waiting - std::min(waiting, own_places_));
  }
  [[nodiscard]] size_t waiting(PortIndex port) const { return waiting_[port]; }

 private:
  const size_t pool_frames_;
  size_t own_places_ = 0;
  size_t shared_places_ = 0;
  size_t shared_used_ = 0;
  std::array<size_t, kMaxPorts> waiting_{};
};

}  // namespace faultline::switching
