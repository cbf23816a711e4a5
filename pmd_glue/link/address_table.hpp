// SPDX-License-Identifier: BSD-3-Clause
// Who a device is on its link, and which way its packets leave: MAC address, VLAN, IP addresses with their
// networks, static routes. Constant once built.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stack/wire/link/link.hpp"

namespace faultline::glue {

/// An address and the length of its network's prefix, counted in the GID's 128 bits (IPv4: 96 more).
struct IpNetwork {
  wire::Gid gid;
  uint8_t prefix_bits = 0;
  /// Of the same family, and in the network.
  [[nodiscard]] bool contains(const wire::Gid& other) const;
  friend bool operator==(const IpNetwork&, const IpNetwork&) = default;
};

struct Route {
  IpNetwork to;
  wire::Gid via;
  friend bool operator==(const Route&, const Route&) = default;
};

/// "198.18.0.1/24", "2001:2::1/64"; without a prefix length every address of the family is in the network.
/// Unicast addresses of hosts alone; nothing where it is not one.
[[nodiscard]] std::optional<IpNetwork> parse_address(const std::string& text);
/// A network, such as "198.19.0.0/16" or "::/0"; the prefix length is required.
[[nodiscard]] std::optional<IpNetwork> parse_network(const std::string& text);

/// The MAC address of a device that names none.
[[nodiscard]] wire::MacAddress mac_of(const wire::Gid& gid);

class AddressTable {
 public:
  /// `addresses` as they are configured; the link-local one, which every device has, is added behind them.
  AddressTable(const wire::MacAddress& mac, const wire::VlanTag& vlan, std::span<const IpNetwork> addresses,
               std::span<const Route> routes);

  [[nodiscard]] const wire::MacAddress& mac() const { return mac_; }
  [[nodiscard]] const wire::VlanTag& vlan() const { return vlan_; }
  [[nodiscard]] const std::vector<wire::Gid>& gids() const { return gids_; }
  [[nodiscard]] bool is_own(const wire::Gid& gid) const;

  /// Whose MAC address packets to `destination` need: its own where it is on the link, a gateway's, or
  /// nothing where no network and no route holds it.
  [[nodiscard]] std::optional<wire::Gid> next_hop(const wire::Gid& destination) const;
  /// The own address to ask from for a neighbour's; nothing where there is none of its family.
  [[nodiscard]] std::optional<wire::Gid> source_for(const wire::Gid& neighbour) const;

 private:
  const wire::MacAddress mac_;
  const wire::VlanTag vlan_;
  std::vector<IpNetwork> networks_;
  std::vector<wire::Gid> gids_;
  const std::vector<Route> routes_;
};

}  // namespace faultline::glue
