// SPDX-License-Identifier: BSD-3-Clause
// Queries of the kernel's network interfaces below net_tap, net_af_packet and net_af_xdp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace faultline::glue {

[[nodiscard]] bool interface_exists(const std::string& name);
/// Returns the interface's index in this network namespace; 0 if there is none.
[[nodiscard]] unsigned interface_index(const std::string& name);
/// Returns whether an interface with that index exists; its name may have changed.
[[nodiscard]] bool interface_index_exists(unsigned index);
/// Returns whether the interface is up and has a carrier.
[[nodiscard]] bool interface_is_running(unsigned index);
[[nodiscard]] std::optional<uint32_t> interface_mtu_bytes(const std::string& name);
/// Returns 0 or an errno.
[[nodiscard]] int set_interface_mtu(const std::string& name, uint32_t mtu_bytes);

/// Returns this process's descriptor of a tap interface; -1 if it has none of that name.
[[nodiscard]] int find_tap_descriptor(const std::string& name);
/// Returns the tap descriptor that receives frames; -1 if it cannot be determined.
[[nodiscard]] int find_tap_queue(const std::string& name);
/// Returns whether the interface of a tap descriptor still exists, under any name and in any namespace.
[[nodiscard]] bool tap_is_attached(int descriptor);

}  // namespace faultline::glue
