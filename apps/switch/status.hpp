// SPDX-License-Identifier: BSD-3-Clause
// What a running switch reports about itself: `faultline-switch --status`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/switch/stations.hpp"

namespace faultline::switching {

struct Traffic {
  uint64_t frames = 0;
  uint64_t bytes = 0;  ///< of Ethernet, without its overhead on the link
  void add(uint64_t frame_bytes) {
    ++frames;
    bytes += frame_bytes;
  }
};

struct PortCounters {
  Traffic sent;               ///< from the port, forwarded
  Traffic received;           ///< for the port
  uint64_t dropped = 0;       ///< from the port, refused by the rules
  uint64_t undelivered = 0;   ///< for the port, which took none
  uint64_t rate_limited = 0;  ///< from the port, which waited for its rate
};

struct SwitchCounters {
  uint64_t forwarded = 0;
  uint64_t answered = 0;
  uint64_t full = 0;          ///< drops: the port takes nothing and its queue is full
  uint64_t crowded = 0;       ///< drops: the port takes nothing and the space shared by such ports is used up
  uint64_t rate_limited = 0;  ///< frames that waited for their program's rate
  std::array<uint64_t, static_cast<size_t>(Drop::count_)> drops{};
};

struct SeatStatus {
  PortIndex port = 0;
  int pid = 0;
  glue::SwitchGrant grant;
  size_t direct_links = 0;
  PortCounters counters;
};

struct UplinkStatus {
  std::string port;  ///< "af_packet:eth0"
  bool is_up = false;
  wire::MacAddress mac;
  uint32_t mtu_bytes = 0;
  uint32_t vlan = 0;      ///< 0: none
  uint64_t waiting = 0;   ///< frames that wait for it
  PortCounters counters;  ///< `sent` is what it has received for the wire
  uint64_t foreign_vlan = 0;
  uint64_t missed = 0;     ///< received frames that the port had no room for
  uint64_t no_buffer = 0;  ///< the pool had no buffer
  uint64_t refused = 0;    ///< frames that the port took and could not send
};

struct SwitchStatus {
  std::string wire;
  int pid = 0;
  std::string exception;  ///< the tap to the kernel; empty: none
  SwitchCounters counters;
  std::optional<UplinkStatus> uplink;
  std::optional<PortCounters> kernel;  ///< of the exception port
  std::vector<SeatStatus> seats;
};

/// Lines for people.
[[nodiscard]] std::string text_of(const SwitchStatus& status);
/// One object, with a newline.
[[nodiscard]] std::string json_of(const SwitchStatus& status);

}  // namespace faultline::switching
