// SPDX-License-Identifier: BSD-3-Clause
// The private header of Annex A11 (A11.4.3): version, IP version, source port, two addresses of 16 bytes. An
// IPv4 address is in the last four of them.
#include <algorithm>
#include <cstring>

#include "stack/wire/mad/mad_cm.hpp"
#include "stack/wire/packet/byte_order.hpp"

namespace faultline::wire {
namespace {

constexpr size_t kVersionAt = 0;    // major and minor: 0.0
constexpr size_t kIpVersionAt = 1;  // in the high bits
constexpr size_t kSourcePortAt = 2;
constexpr size_t kSourceAt = 4;
constexpr size_t kDestinationAt = 20;
constexpr size_t kIpv4In16 = 12;

Gid read_address(const uint8_t* at, bool ipv4) {
  if (ipv4) return Gid::from_ipv4(load_be32(at + kIpv4In16));
  Gid gid;
  std::memcpy(gid.bytes.data(), at, gid.bytes.size());
  return gid;
}

void write_address(uint8_t* at, const Gid& gid) {
  std::fill_n(at, gid.bytes.size(), uint8_t{0});
  const size_t from = gid.is_ipv4() ? kIpv4In16 : 0;
  std::memcpy(at + from, gid.bytes.data() + from, gid.bytes.size() - from);
}

}  // namespace

std::optional<IpAddressing> read_ip_addressing(std::span<const uint8_t, kIpAddressingBytes> bytes) {
  const uint8_t ip_version = bytes[kIpVersionAt] >> 4;
  if (bytes[kVersionAt] != 0 || (ip_version != 4 && ip_version != 6)) return std::nullopt;
  const bool ipv4 = ip_version == 4;
  const IpAddressing addressing{read_address(&bytes[kSourceAt], ipv4),
                                read_address(&bytes[kDestinationAt], ipv4), load_be16(&bytes[kSourcePortAt])};
  // An IPv4-mapped IPv6 address would give one peer two names.
  if (!ipv4 && (addressing.source.is_ipv4() || addressing.destination.is_ipv4())) return std::nullopt;
  return addressing;
}

void write_ip_addressing(std::span<uint8_t, kIpAddressingBytes> bytes, const IpAddressing& addressing) {
  bytes[kVersionAt] = 0;
  bytes[kIpVersionAt] = static_cast<uint8_t>((addressing.source.is_ipv4() ? 4 : 6) << 4);
  store_be16(&bytes[kSourcePortAt], addressing.source_port);
  write_address(&bytes[kSourceAt], addressing.source);
  write_address(&bytes[kDestinationAt], addressing.destination);
}

}  // namespace faultline::wire
