// SPDX-License-Identifier: BSD-3-Clause
// What drivers on an existing interface of the kernel share (net_af_packet, net_af_xdp).
#pragma once

#include <string>

#include "pmd_glue/ports/ethdev_port.hpp"

namespace faultline::glue {

class KernelInterfacePort : public EthdevPort {
 public:
  /// These PMDs do not look at the interface again: the port does.
  [[nodiscard]] bool link_up() const override;
  [[nodiscard]] bool is_gone() const override;

 protected:
  /// Checks the interface, the rights of the process, and sets the MTU.
  PortResult prepare(const PortSetup& setup) override;
  PortResult finish(const PortSetup& setup) override;
  /// Why the process may not have such a port, and what to do; nothing if it may.
  [[nodiscard]] virtual std::optional<std::string> missing_rights() const = 0;

  unsigned interface_index_ = 0;  ///< once started
};

/// The MTU of the configuration, or of the interface.
[[nodiscard]] uint32_t interface_port_mtu_bytes(const DeviceConfig& device);
[[nodiscard]] bool interface_expects_link(const PortConfig& config);

}  // namespace faultline::glue
