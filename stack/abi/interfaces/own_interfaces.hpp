// SPDX-License-Identifier: BSD-3-Clause
// The interfaces of this process's devices, and those of the host.
#pragma once

#include <string_view>
#include <vector>

#include <ifaddrs.h>

#include "stack/abi/interfaces/net_interface.hpp"

namespace faultline::abi {

/// True for a program on a wire ($FAULTLINE_WIRE), unless $FAULTLINE_WIRE_INTERFACE is "off". Reads the
/// environment.
[[nodiscard]] bool shows_interfaces();

/// The addresses of the host's own interfaces. Empty if the kernel does not tell.
class HostInterfaces {
 public:
  HostInterfaces();
  ~HostInterfaces();
  HostInterfaces(const HostInterfaces&) = delete;
  HostInterfaces& operator=(const HostInterfaces&) = delete;
  [[nodiscard]] const ifaddrs* first() const { return first_; }

 private:
  ifaddrs* first_ = nullptr;
};

/// Returns the interfaces if shows_interfaces(). Lists the devices, and so attaches the process to its wire.
/// Preserves errno.
[[nodiscard]] std::vector<OwnInterface> own_interfaces();

/// Whether one of them has this name. Preserves errno.
[[nodiscard]] bool is_own_interface(std::string_view name);

}  // namespace faultline::abi
