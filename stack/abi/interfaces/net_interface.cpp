// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/interfaces/net_interface.hpp"

#include <algorithm>

#include <net/if.h>
#include <spdlog/fmt/fmt.h>

#include "stack/verbs/device/host_interface.hpp"
#include "stack/verbs/device/port_speed.hpp"

namespace faultline::abi {
namespace {

constexpr unsigned kIpv4PrefixBits = 96;  // of an IPv4 address in a GID

/// The prefix in the address's own family.
uint8_t prefix_of(const wire::Gid& gid, unsigned bits_of_128) {
  return static_cast<uint8_t>(gid.is_ipv4() ? std::max(bits_of_128, kIpv4PrefixBits) - kIpv4PrefixBits
                                            : bits_of_128);
}

bool has_interface(const ifaddrs* hosts, std::string_view name) {
  for (const ifaddrs* at = hosts; at != nullptr; at = at->ifa_next)
    if (at->ifa_name == name) return true;
  return false;
}

/// "wire0", unless the host has an interface of that name.
std::string name_of(int device_index, const ifaddrs* hosts) {
  std::string name = fmt::format("wire{}", device_index);
  while (has_interface(hosts, name)) name += '_';
  return name.substr(0, IF_NAMESIZE - 1);
}

/// Differs from those of the host, which count from 1, and from those of the wire's other programs, which
/// have other addresses.
uint32_t index_of(int device_index, const std::vector<wire::Gid>& gids) {
  constexpr uint32_t kFirst = 0x10000000;
  constexpr uint32_t kHostBits = 17;  // 198.18.0.0/15
  const auto ipv4 = std::ranges::find_if(gids, &wire::Gid::is_ipv4);
  const uint32_t host = ipv4 == gids.end() ? 0 : ipv4->ipv4() & ((1U << kHostBits) - 1);
  return kFirst + (static_cast<uint32_t>(device_index) << kHostBits | host);
}

wire::Gid source_for(const std::vector<wire::Gid>& gids, const wire::Gid& to) {
  const auto own =
      std::ranges::find_if(gids, [&](const wire::Gid& gid) { return gid.is_ipv4() == to.is_ipv4(); });
  return own == gids.end() ? wire::Gid{} : *own;
}

void add_routes(OwnInterface& interface, const verbs::DeviceDescription& device) {
  for (const InterfaceAddress& own : interface.addresses) {
    InterfaceRoute route{masked(own.gid, own.prefix_bits), own.prefix_bits, {}, own.gid};
    const auto same = [&](const InterfaceRoute& other) {
      return other.to == route.to && other.prefix_bits == route.prefix_bits;
    };
    if (std::ranges::none_of(interface.routes, same)) interface.routes.push_back(route);
  }
  for (const verbs::DeviceRoute& route : device.routes) {
    const uint8_t bits = prefix_of(route.to, route.prefix_bits);
    interface.routes.push_back({masked(route.to, bits), bits, route.via, source_for(device.gids, route.to)});
  }
}

}  // namespace

wire::Gid masked(const wire::Gid& gid, uint8_t bits) {
  constexpr unsigned kByteBits = 8;
  const unsigned kept = bits + (gid.is_ipv4() ? kIpv4PrefixBits : 0);
  wire::Gid result;
  for (unsigned at = 0; at < result.bytes.size(); ++at) {
    const unsigned here = std::min(kept - std::min(kept, at * kByteBits), kByteBits);
    result.bytes[at] = static_cast<uint8_t>(gid.bytes[at] & (0xff00U >> here));
  }
  return result;
}

uint32_t flags_of(const OwnInterface& interface) {
  constexpr uint32_t kLowerUp = 1U << 16;  // IFF_LOWER_UP of linux/if.h, which excludes net/if.h
  const uint32_t always = IFF_UP | IFF_BROADCAST | IFF_MULTICAST;
  return interface.is_up ? always | IFF_RUNNING | kLowerUp : always;
}

std::string host_interface_of(const verbs::DeviceDescription& device, const ifaddrs* hosts) {
  const char* const name = verbs::interface_with(device.gids, hosts);
  return name == nullptr ? std::string() : name;
}

std::optional<OwnInterface> interface_of(const verbs::DeviceDescription& device, int index,
                                         const ibv_port_attr& port, const ifaddrs* hosts) {
  if (!host_interface_of(device, hosts).empty()) return std::nullopt;
  OwnInterface interface;
  interface.name = name_of(index, hosts);
  interface.index = index_of(index, device.gids);
  interface.device = device.name;
  interface.mac = device.mac;
  interface.mtu_bytes = device.mtu_bytes;
  constexpr uint32_t kMbpsOfTenth = 100;
  interface.speed_mbps = verbs::tenths_of_gbps(port.active_speed, port.active_width) * kMbpsOfTenth;
  interface.is_up = port.state == IBV_PORT_ACTIVE;
  for (size_t i = 0; i < device.gids.size(); ++i) {
    const wire::Gid& gid = device.gids[i];
    constexpr uint8_t kWhole = 128;
    interface.addresses.push_back(
        {gid, prefix_of(gid, i < device.prefix_bits.size() ? device.prefix_bits[i] : kWhole)});
  }
  add_routes(interface, device);
  return interface;
}

}  // namespace faultline::abi
