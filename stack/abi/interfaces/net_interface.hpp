// SPDX-License-Identifier: BSD-3-Clause
// The network interfaces that a program on a wire finds besides those of the kernel: one for each device
// whose addresses no interface of the host has. The kernel knows none of them. Pure. Reading begins here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ifaddrs.h>
#include <infiniband/verbs.h>

#include "stack/verbs/objects/backend.hpp"

namespace faultline::abi {

/// In packets, as of the kernel's interfaces; and ff:ff:ff:ff:ff:ff.
inline constexpr uint32_t kQueueLength = 1000;
inline constexpr wire::MacAddress kBroadcastMac{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

/// An address, with the prefix of its network in the address's own family.
struct InterfaceAddress {
  wire::Gid gid;
  uint8_t prefix_bits = 0;
};

/// A network that is reached by the interface. `to` is masked; `via` is zero for a network on the link.
struct InterfaceRoute {
  wire::Gid to;
  uint8_t prefix_bits = 0;
  wire::Gid via;
  wire::Gid source;  ///< zero: the interface has no address of the family
};

struct OwnInterface {
  std::string name;    ///< "wire0"
  uint32_t index = 0;  ///< above those that the kernel gives out
  std::string device;  ///< of verbs
  wire::MacAddress mac;
  uint32_t mtu_bytes = 0;
  uint32_t speed_mbps = 0;
  bool is_up = false;
  std::vector<InterfaceAddress> addresses;
  std::vector<InterfaceRoute> routes;
};

/// Returns the interface of one device; nullopt if an interface of the host has one of its addresses.
[[nodiscard]] std::optional<OwnInterface> interface_of(const verbs::DeviceDescription& device, int index,
                                                       const ibv_port_attr& port, const ifaddrs* hosts);

/// Returns the kernel interface that has an address of the device, as a tap or veth may; "" if there is none.
/// Programs use its addresses, so an interface without one of them would mislead them.
[[nodiscard]] std::string host_interface_of(const verbs::DeviceDescription& device, const ifaddrs* hosts);

/// Returns the flags of netdevice(7).
[[nodiscard]] uint32_t flags_of(const OwnInterface& interface);

/// Returns the first `bits` of an address of its family, and zeros.
[[nodiscard]] wire::Gid masked(const wire::Gid& gid, uint8_t bits);

}  // namespace faultline::abi
