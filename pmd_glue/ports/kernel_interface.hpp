// SPDX-License-Identifier: BSD-3-Clause
// Common parts of drivers on an existing kernel interface (net_af_packet, net_af_xdp).
#pragma once

#include <string>

#include "pmd_glue/ports/ethdev_port.hpp"

namespace faultline::glue {

class KernelInterfacePort : public EthdevPort {
 public:
  /// These PMDs do not monitor the interface, so the port does.
  [[nodiscard]] bool link_up() const override;
  [[nodiscard]] bool is_gone() const override;

 protected:
  /// Checks the interface and the rights of the process; sets the MTU.
  PortResult prepare(const PortSetup& setup) override;
  PortResult finish(const PortSetup& setup) override;
  /// Returns why the process may not open such a port, and what to do; nullopt if it may.
  [[nodiscard]] virtual std::optional<std::string> missing_rights() const = 0;

  unsigned interface_index_ = 0;  ///< set once started
};

/// Returns the configured MTU, or the interface's.
[[nodiscard]] uint32_t interface_port_mtu_bytes(const DeviceConfig& device);
[[nodiscard]] bool interface_expects_link(const PortConfig& config);

}  // namespace faultline::glue
