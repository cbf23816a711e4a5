// SPDX-License-Identifier: BSD-3-Clause
// How many frames may wait for ports that take none for now. Each port has a few places of its own, so that
// programs which are stopped take none of the others'; all else is shared, up to a port's bound. Together
// they leave the frame pool enough to receive with: memif asks for 32 buffers at a time, or gives nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "apps/switch/stations.hpp"

namespace faultline::switching {

class WaitingRoom {
 public:
  static constexpr size_t kOwnPlaces = 128;
  static constexpr size_t kMostOfAPort = 1024;
  enum class Admission : uint8_t {
    admitted,
    port_full,  ///< as many wait for the port as may for any
    all_full    ///< what is shared is used up, by others perhaps
  };

  /// `pool_frames`: as many buffers as there are. Half of them may wait.
  explicit WaitingRoom(size_t pool_frames)
      : shared_places_(pool_frames / 2 > kMaxPorts * kOwnPlaces ? pool_frames / 2 - kMaxPorts * kOwnPlaces
                                                                : 0) {}

  /// A frame waits for the port, if it is admitted.
  [[nodiscard]] Admission admit(PortIndex port) {
    size_t& waiting = waiting_[port];
    if (waiting >= kMostOfAPort) return Admission::port_full;
    if (waiting >= kOwnPlaces) {
      if (shared_used_ >= shared_places_) return Admission::all_full;
      ++shared_used_;
    }
    ++waiting;
    return Admission::admitted;
  }
  /// So many wait for the port no longer.
  void leave(PortIndex port, size_t frames) {
    size_t& waiting = waiting_[port];
    const size_t shared_before = waiting - std::min(waiting, kOwnPlaces);
    waiting -= std::min(waiting, frames);
    shared_used_ -= shared_before - (waiting - std::min(waiting, kOwnPlaces));
  }
  [[nodiscard]] size_t waiting(PortIndex port) const { return waiting_[port]; }

 private:
  const size_t shared_places_;
  size_t shared_used_ = 0;
  std::array<size_t, kMaxPorts> waiting_{};
};

}  // namespace faultline::switching
