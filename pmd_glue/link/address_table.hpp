// SPDX-License-Identifier: BSD-3-Clause
// A device's identity on its link and its routing: MAC address, VLAN, IP addresses with their networks,
// static routes. Constant once built.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stack/wire/link/link.hpp"

namespace faultline::glue {

/// Bits of ::ffff:0:0/96, the prefix of an IPv4 address in a GID (RFC 4291, 2.5.5.2).
inline constexpr uint8_t kIpv4PrefixBits = 96;

/// An address and its network's prefix length, counted in the GID's 128 bits (IPv4: 96 more).
struct IpNetwork {
  wire::Gid gid;
  uint8_t prefix_bits = 0;
  /// True if `other` is of the same family and in the network.
  [[nodiscard]] bool contains(const wire::Gid& other) const;
  friend bool operator==(const IpNetwork&, const IpNetwork&) = default;
};

struct Route {
  IpNetwork to;
  wire::Gid via;
  friend bool operator==(const Route&, const Route&) = default;
};

/// Parses "198.18.0.1/24" or "2001:2::1/64". Without a prefix length the network holds every address of the
/// family. Returns nullopt if the text is not a host's unicast address.
[[nodiscard]] std::optional<IpNetwork> parse_address(const std::string& text);
/// Parses a network such as "198.19.0.0/16" or "::/0"; the prefix length is required.
[[nodiscard]] std::optional<IpNetwork> parse_network(const std::string& text);

/// Returns the default MAC address of a device, derived from its address.
[[nodiscard]] wire::MacAddress mac_of(const wire::Gid& gid);

class AddressTable {
 public:
  /// Takes the configured `addresses`. Appends the link-local address of the MAC address, which every device
  /// has whose addresses are not the host's.
  AddressTable(const wire::MacAddress& mac, const wire::VlanTag& vlan, std::span<const IpNetwork> addresses,
               std::span<const Route> routes, bool has_link_local = true);

  [[nodiscard]] const wire::MacAddress& mac() const { return mac_; }
  /// Changes the MAC address of frames. The link-local address stays.
  void set_mac(const wire::MacAddress& mac) { mac_ = mac; }
  [[nodiscard]] const wire::VlanTag& vlan() const { return vlan_; }
  [[nodiscard]] const std::vector<wire::Gid>& gids() const { return gids_; }
  /// The networks of `gids`, in their order.
  [[nodiscard]] const std::vector<IpNetwork>& networks() const { return networks_; }
  [[nodiscard]] bool is_own(const wire::Gid& gid) const;

  /// Returns the neighbour whose MAC address packets to `destination` need: the destination itself if it is
  /// on the link, or a gateway. Returns nullopt if no network and no route contains it.
  [[nodiscard]] std::optional<wire::Gid> next_hop(const wire::Gid& destination) const;
  /// Returns the device's source address for requests to `neighbour`; nullopt if the device has none of its
  /// family.
  [[nodiscard]] std::optional<wire::Gid> source_for(const wire::Gid& neighbour) const;

 private:
  wire::MacAddress mac_;
  const wire::VlanTag vlan_;
  std::vector<IpNetwork> networks_;
  std::vector<wire::Gid> gids_;
  const std::vector<Route> routes_;
};

}  // namespace faultline::glue
