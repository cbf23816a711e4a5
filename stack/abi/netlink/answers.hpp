// SPDX-License-Identifier: BSD-3-Clause
// Answers the requests of RDMA netlink about this user's devices, as Linux's nldev does for those of the
// kernel. Reading begins here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stack/abi/netlink/message.hpp"
#include "stack/abi/tree/device_files.hpp"
#include "stack/status/segment_reader.hpp"

namespace faultline::abi {

/// Where answers are from. The functions are called only if a request needs them.
struct NetlinkSources {
  std::span<const DeviceFacts> devices;
  /// Returns the segments of the running processes with the device.
  std::function<std::vector<std::unique_ptr<status::SegmentReader>>(const std::string& device)> processes;
  /// Returns the sums of these processes, in the order of verbs::counter_texts().
  std::function<std::vector<uint64_t>(const std::string& device)> counters;
};

/// The socket that asks.
struct NetlinkAsker {
  uint32_t port = 0;                 ///< sockaddr_nl::nl_pid
  bool wants_extended_acks = false;  ///< NETLINK_EXT_ACK
  bool wants_capped_acks = false;    ///< NETLINK_CAP_ACK
};

/// Returns the datagrams that answer the messages in `bytes`, which may be malformed.
[[nodiscard]] std::vector<NetlinkBytes> answer_netlink(std::span<const uint8_t> bytes,
                                                       const NetlinkAsker& asker,
                                                       const NetlinkSources& sources);

}  // namespace faultline::abi
