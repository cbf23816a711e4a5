// SPDX-License-Identifier: BSD-3-Clause
// The data path's interface for the control socket: port allocation and the table of addresses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "apps/switch/stations.hpp"
#include "pmd_glue/wires/wake_flag.hpp"

namespace faultline::switching {

class Seats {
 public:
  virtual ~Seats() = default;

  /// Calls `use` while no frame is being forwarded. Must not be nested.
  virtual void with_stations(const std::function<void(StationTable&)>& use) = 0;
  /// Allocates a free port, the `wanted` one if that is free. `wake_flag` is rung for frames sent to the
  /// port. Returns nullopt and one line in `error` on failure.
  [[nodiscard]] virtual std::optional<PortIndex> take_port(std::optional<PortIndex> wanted,
                                                           glue::WakeFlag& wake_flag, std::string& error) = 0;
  /// Releases a port that was allocated but got no seat.
  virtual void give_back(PortIndex port) = 0;
  /// Ends a seat and releases its port.
  virtual void leave(PortIndex port) = 0;
  [[nodiscard]] virtual const std::string& socket_of(PortIndex port) const = 0;
  [[nodiscard]] virtual uint32_t mtu_bytes() const = 0;
};

}  // namespace faultline::switching
