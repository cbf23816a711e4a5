// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/link/address_table.hpp"

#include <algorithm>
#include <charconv>

#include <arpa/inet.h>

namespace faultline::glue {
namespace {

bool is_host_address(const wire::Gid& gid) {
  if (wire::is_multicast(gid)) return false;
  if (gid.is_ipv4()) {
    const uint32_t top = gid.ipv4() >> 24;
    return top != 0 && top != 127 && top < 224;
  }
  // Excludes :: and ::1.
  return std::any_of(gid.bytes.begin(), gid.bytes.end() - 1, [](uint8_t b) { return b != 0; });
}

struct Parsed {
  IpNetwork network;
  bool has_prefix = false;
};

std::optional<Parsed> parse(const std::string& text) {
  const size_t slash = text.find('/');
  const std::string address = text.substr(0, slash);
  const bool ipv6 = address.find(':') != std::string::npos;
  Parsed parsed;
  IpNetwork& network = parsed.network;
  if (ipv6) {
    if (inet_pton(AF_INET6, address.c_str(), network.gid.bytes.data()) != 1 || network.gid.is_ipv4())
      return std::nullopt;
  } else {
    in_addr ipv4{};
    if (inet_pton(AF_INET, address.c_str(), &ipv4) != 1) return std::nullopt;
    network.gid = wire::Gid::from_ipv4(ntohl(ipv4.s_addr));
    network.prefix_bits = kIpv4PrefixBits;
  }
  if (slash == std::string::npos) return parsed;
  unsigned prefix = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data() + slash + 1, end, prefix);
  if (error != std::errc{} || after != end || prefix > (ipv6 ? 128U : 32U)) return std::nullopt;
  network.prefix_bits = static_cast<uint8_t>(network.prefix_bits + prefix);
  parsed.has_prefix = true;
  return parsed;
}

bool same_prefix(const wire::Gid& a, const wire::Gid& b, unsigned bits) {
  const unsigned whole = bits / 8;
  if (!std::equal(a.bytes.begin(), a.bytes.begin() + whole, b.bytes.begin())) return false;
  const unsigned rest = bits % 8;
  return rest == 0 || ((a.bytes[whole] ^ b.bytes[whole]) >> (8 - rest)) == 0;
}

}  // namespace

// Locally administered (IEEE 802, second bit), 'F', then the last four bytes of the address, which
// distinguish addresses of one network.
wire::MacAddress mac_of(const wire::Gid& gid) {
  wire::MacAddress mac{{0x02, 0x46, 0, 0, 0, 0}};
  std::copy_n(gid.bytes.begin() + 12, 4, mac.bytes.begin() + 2);
  return mac;
}

bool IpNetwork::contains(const wire::Gid& other) const {
  return gid.is_ipv4() == other.is_ipv4() && same_prefix(gid, other, prefix_bits);
}

std::optional<IpNetwork> parse_address(const std::string& text) {
  const auto parsed = parse(text);
  if (!parsed || !is_host_address(parsed->network.gid)) return std::nullopt;
  const bool zero_prefix = parsed->has_prefix && parsed->network.prefix_bits ==
                                                     (parsed->network.gid.is_ipv4() ? kIpv4PrefixBits : 0);
  if (zero_prefix) return std::nullopt;
  return parsed->network;
}

std::optional<IpNetwork> parse_network(const std::string& text) {
  const auto parsed = parse(text);
  if (!parsed || !parsed->has_prefix) return std::nullopt;
  return parsed->network;
}

AddressTable::AddressTable(const wire::MacAddress& mac, const wire::VlanTag& vlan,
                           std::span<const IpNetwork> addresses, std::span<const Route> routes,
                           bool has_link_local)
    : mac_(mac),
      vlan_(vlan),
      networks_(addresses.begin(), addresses.end()),
      routes_(routes.begin(), routes.end()) {
  const wire::Gid link_local = wire::link_local_gid(mac);
  const bool configured = std::any_of(networks_.begin(), networks_.end(),
                                      [&](const IpNetwork& network) { return network.gid == link_local; });
  if (has_link_local && !configured) networks_.push_back({link_local, 64});
  for (const IpNetwork& network : networks_) gids_.push_back(network.gid);
}

bool AddressTable::is_own(const wire::Gid& gid) const {
  return std::find(gids_.begin(), gids_.end(), gid) != gids_.end();
}

std::optional<wire::Gid> AddressTable::next_hop(const wire::Gid& destination) const {
  // No router forwards link-local packets (RFC 4291, 2.5.6).
  if (!destination.is_ipv4() && wire::is_link_local(destination)) return destination;
  std::optional<wire::Gid> hop;
  int longest = -1;
  for (const IpNetwork& network : networks_)
    if (network.contains(destination) && network.prefix_bits > longest) {
      longest = network.prefix_bits;
      hop = destination;
    }
  // A route has precedence over a network of the same length: an address without a prefix length covers every
  // host of its family.
  for (const Route& route : routes_)
    if (route.to.contains(destination) && route.to.prefix_bits >= longest) {
      longest = route.to.prefix_bits;
      hop = route.via;
    }
  return hop;
}

std::optional<wire::Gid> AddressTable::source_for(const wire::Gid& neighbour) const {
  const IpNetwork* best = nullptr;
  int longest = -1;
  for (const IpNetwork& network : networks_) {
    if (network.gid.is_ipv4() != neighbour.is_ipv4()) continue;
    const int length = network.contains(neighbour) ? network.prefix_bits : -1;
    if (best != nullptr && length <= longest) continue;
    best = &network;
    longest = length;
  }
  if (best == nullptr) return std::nullopt;
  return best->gid;
}

}  // namespace faultline::glue
