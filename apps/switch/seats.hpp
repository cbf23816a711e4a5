// SPDX-License-Identifier: BSD-3-Clause
// The data path's interface for the control socket: port allocation and the table of addresses.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/switch/stations.hpp"
#include "apps/switch/status.hpp"
#include "pmd_glue/wires/inbox.hpp"

namespace faultline::switching {

class Seats {
 public:
  virtual ~Seats() = default;

  /// Calls `use` while no frame is being forwarded. Must not be nested.
  virtual void with_stations(const std::function<void(StationTable&)>& use) = 0;
  /// Allocates a free port, the `wanted` one if that is free. Returns nullopt and one line in `error` on
  /// failure.
  [[nodiscard]] virtual std::optional<PortIndex> take_port(std::optional<PortIndex> wanted,
                                                           std::string& error) = 0;
  /// Begins the ring of a port: kSeatBytes of `memory`, and the inbox of its process. Returns false with
  /// errno if it cannot be mapped.
  [[nodiscard]] virtual bool begin_ring(PortIndex port, int memory, std::unique_ptr<glue::Inbox> inbox) = 0;
  /// Returns the ports whose processes have broken the rules of their ring since the last call. The reason is
  /// in the log.
  [[nodiscard]] virtual std::vector<PortIndex> take_offenders() = 0;
  /// Releases a port that was allocated but got no seat.
  virtual void give_back(PortIndex port) = 0;
  /// Ends a seat and releases its port.
  virtual void leave(PortIndex port) = 0;
  [[nodiscard]] virtual uint32_t mtu_bytes() const = 0;
  /// Returns whether an uplink by sockets is up, if that has changed since the last call.
  [[nodiscard]] virtual std::optional<bool> take_uplink_change() = 0;
  /// Fills in what the data path knows, of `status.seats` the counters.
  virtual void describe(SwitchStatus& status) const = 0;

  // --- direct links ---

  using Pair = std::pair<PortIndex, PortIndex>;
  /// Returns the pairs of seats that have begun to talk since the last call.
  [[nodiscard]] virtual std::vector<Pair> take_new_pairs() = 0;
  /// `kept`: a previous switch made the link. Otherwise the pair has none any more, and gets one at its next
  /// frame, unless it is `barred`.
  enum class LinkState : uint8_t { none, kept, barred };
  virtual void note_link(const Pair& pair, LinkState state) = 0;
  /// Returns the seats that have a link to this one.
  [[nodiscard]] virtual PortSet linked_to(PortIndex port) = 0;
};

}  // namespace faultline::switching
