// SPDX-License-Identifier: BSD-3-Clause
// What the control socket needs of the data path: ports to give out, and the table of addresses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "apps/switch/stations.hpp"
#include "pmd_glue/wires/switch_bell.hpp"

namespace faultline::switching {

class Seats {
 public:
  virtual ~Seats() = default;

  /// Calls `use` while no frame is looked at. Not from within another.
  virtual void with_stations(const std::function<void(StationTable&)>& use) = 0;
  /// A port that nobody has, the `wanted` one where that is free; `bell` is rung for what is sent to it.
  /// Nothing, and one line in `error`, where there is none.
  [[nodiscard]] virtual std::optional<PortIndex> take_port(std::optional<PortIndex> wanted,
                                                           glue::SwitchBell& bell, std::string& error) = 0;
  /// A port that got no seat.
  virtual void give_back(PortIndex port) = 0;
  /// The end of a seat.
  virtual void leave(PortIndex port) = 0;
  [[nodiscard]] virtual const std::string& socket_of(PortIndex port) const = 0;
  [[nodiscard]] virtual uint32_t mtu_bytes() const = 0;
};

}  // namespace faultline::switching
