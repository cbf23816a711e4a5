// SPDX-License-Identifier: BSD-3-Clause
// The kernel's network interfaces under net_tap, net_af_packet and net_af_xdp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace faultline::glue {

[[nodiscard]] bool interface_exists(const std::string& name);
[[nodiscard]] std::optional<uint32_t> interface_mtu_bytes(const std::string& name);
/// 0 or an errno.
[[nodiscard]] int set_interface_mtu(const std::string& name, uint32_t mtu_bytes);

}  // namespace faultline::glue
