// SPDX-License-Identifier: BSD-3-Clause
// Deficit round robin (Shreedhar and Varghese, 1996): which port may send next. Each round gives a port that
// has frames a quantum of bytes, so ports get equal shares of bytes whatever the sizes of their frames.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "apps/switch/stations.hpp"

namespace faultline::switching {

class DeficitRoundRobin {
 public:
  /// What became of a port's first frame.
  enum class Outcome : uint8_t {
    sent,
    empty,     ///< the port has no frame, and leaves the order
    too_long,  ///< for what is left of the port's share: the port's turn ends
    blocked    ///< the port keeps its place in the order and its share
  };
  struct Step {
    Outcome outcome = Outcome::empty;
    uint32_t bytes = 0;  ///< of a frame that was sent
  };

  /// Bytes that a port may send in its turn. With less than the longest frame, some turns send nothing.
  void set_quantum(uint32_t bytes) { quantum_bytes_ = bytes; }

  /// True if no port has frames.
  [[nodiscard]] bool is_empty() const { return order_.empty(); }
  /// The port has frames from now on.
  void add(PortIndex port) {
    if (std::exchange(places_[port].is_listed, true)) return;
    order_.push_back(port);
  }
  void remove(PortIndex port) {
    if (!places_[port].is_listed) return;
    std::erase(order_, port);
    places_[port] = {};
  }

  /// Calls `step(port, most_bytes)`, which sends the port's first frame if it has at most `most_bytes` and
  /// need not wait. Ends after `most_frames`, or when all ports are blocked or have left. Returns the number
  /// of frames.
  template <typename SendFirst>
  size_t serve(size_t most_frames, SendFirst step) {
    size_t left = most_frames;
    while (left != 0 && !order_.empty()) {
      const PortIndex port = order_.front();
      switch (serve_turn(port, left, step)) {
        case Outcome::sent:
          break;
        case Outcome::empty:
          places_[port] = {};
          order_.pop_front();
          break;
        case Outcome::too_long:
          places_[port].has_quantum = false;
          order_.pop_front();
          order_.push_back(port);
          break;
        case Outcome::blocked:
          order_.pop_front();
          blocked_.push_back(port);
          break;
      }
    }
    order_.insert(order_.begin(), blocked_.begin(), blocked_.end());
    blocked_.clear();
    return most_frames - left;
  }

 private:
  struct Place {
    bool is_listed = false;
    bool has_quantum = false;  ///< of the current turn, which may last for several calls
    uint32_t deficit_bytes = 0;
  };

  /// Sends frames of a port until its turn ends. Outcome::sent: `left` is 0, and the turn goes on.
  template <typename SendFirst>
  [[nodiscard]] Outcome serve_turn(PortIndex port, size_t& left, SendFirst& step) {
    Place& place = places_[port];
    if (!std::exchange(place.has_quantum, true)) place.deficit_bytes += quantum_bytes_;
    while (left != 0) {
      const Step done = step(port, place.deficit_bytes);
      if (done.outcome != Outcome::sent) return done.outcome;
      place.deficit_bytes -= done.bytes;
      --left;
    }
    return Outcome::sent;
  }

  uint32_t quantum_bytes_ = 1;
  std::vector<Place> places_ = std::vector<Place>(kMaxPorts);
  std::deque<PortIndex> order_;
  std::vector<PortIndex> blocked_;  ///< empty between calls
};

}  // namespace faultline::switching
