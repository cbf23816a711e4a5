// SPDX-License-Identifier: BSD-3-Clause
// What ibv_port_attr::active_speed and active_width stand for (IBA 14.2.5.6, PortInfo).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace faultline::verbs {

struct LaneSpeed {
  uint8_t code;
  uint32_t tenths_of_gbps;
  std::string_view name;  ///< in the kernel's "rate" file
};

/// Unknown codes: the slowest speed.
[[nodiscard]] constexpr LaneSpeed lane_speed(uint8_t code) {
  constexpr std::array<LaneSpeed, 8> kSpeeds{{{1, 25, " SDR"},
                                              {2, 50, " DDR"},
                                              {4, 100, " QDR"},
                                              {8, 100, " FDR10"},
                                              {16, 140, " FDR"},
                                              {32, 250, " EDR"},
                                              {64, 500, " HDR"},
                                              {128, 1000, " NDR"}}};
  for (const LaneSpeed& speed : kSpeeds)
    if (speed.code == code) return speed;
  return kSpeeds.front();
}

[[nodiscard]] constexpr uint32_t lanes_of(uint8_t width_code) {
  switch (width_code) {
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 1;
  }
}

/// In units of 100 Mb/s, as ibv_query_port_speed(3).
[[nodiscard]] constexpr uint32_t tenths_of_gbps(uint8_t speed_code, uint8_t width_code) {
  return lane_speed(speed_code).tenths_of_gbps * lanes_of(width_code);
}

}  // namespace faultline::verbs
