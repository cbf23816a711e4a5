// SPDX-License-Identifier: BSD-3-Clause
// Routing netlink (rtnetlink(7)) about our own interfaces, which the kernel does not know. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <linux/if_link.h>

#include "stack/abi/interfaces/net_interface.hpp"
#include "stack/abi/netlink/message.hpp"

namespace faultline::abi {

/// What a socket does with one request.
struct RouteAnswer {
  /// Whether the kernel answers, too: `messages` are then more entries of its dump, before its own.
  bool asks_kernel = true;
  std::vector<NetlinkBytes> messages;
};

/// Returns the statistics of an interface of ours.
using StatisticsOf = rtnl_link_stats64 (*)(const OwnInterface&);

/// `bytes` begin with a whole message, which may be malformed. `port` is the asking socket's. `statistics_of`
/// is called for each interface of the answer whose statistics the message wants.
[[nodiscard]] RouteAnswer answer_route(std::span<const uint8_t> bytes, uint32_t port,
                                       std::span<const OwnInterface> interfaces, StatisticsOf statistics_of);

}  // namespace faultline::abi
