// SPDX-License-Identifier: BSD-3-Clause
// Limits the frames that wait for ports which take none for now. Each port has a few reserved places, so that
// stopped programs use none of the others'. The rest is shared, up to a limit per port. The limits leave
// enough of the frame pool to receive with: memif allocates 32 buffers at a time, or receives nothing.
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
    port_full,  ///< the port's limit is reached
    all_full    ///< the shared places are used up, possibly by other ports
  };

  /// `pool_frames` is the number of buffers in the pool. Half of them may wait.
  explicit WaitingRoom(size_t pool_frames)
      : shared_places_(pool_frames / 2 > kMaxPorts * kOwnPlaces ? pool_frames / 2 - kMaxPorts * kOwnPlaces
                                                                : 0) {}

  /// Counts one frame for the port if it is admitted.
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
  /// Releases the places of `frames` frames of the port.
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
