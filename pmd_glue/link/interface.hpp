// SPDX-License-Identifier: BSD-3-Clause
// The kernel's network interfaces under net_tap, net_af_packet and net_af_xdp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace faultline::glue {

[[nodiscard]] bool interface_exists(const std::string& name);
/// Its index in this network namespace; 0 for none.
[[nodiscard]] unsigned interface_index(const std::string& name);
/// What has that index is there; it may have another name by now.
[[nodiscard]] bool interface_index_exists(unsigned index);
/// Up and with a carrier.
[[nodiscard]] bool interface_is_running(unsigned index);
[[nodiscard]] std::optional<uint32_t> interface_mtu_bytes(const std::string& name);
/// 0 or an errno.
[[nodiscard]] int set_interface_mtu(const std::string& name, uint32_t mtu_bytes);

/// The descriptor by which this process holds a tap interface; -1 where it holds none of that name.
[[nodiscard]] int find_tap_descriptor(const std::string& name);
/// The one of its descriptors there that frames come to; -1 where that is not to be told.
[[nodiscard]] int find_tap_queue(const std::string& name);
/// The interface behind a tap descriptor is still there, under whatever name and in whatever namespace.
[[nodiscard]] bool tap_is_attached(int descriptor);

}  // namespace faultline::glue
