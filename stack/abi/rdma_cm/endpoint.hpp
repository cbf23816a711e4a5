// SPDX-License-Identifier: BSD-3-Clause
// Addresses as programs of rdma_cm give and get them: sockaddr_in, sockaddr_in6 and sockaddr_ib.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <sys/socket.h>

#include "stack/wire/packet/headers.hpp"

namespace faultline::abi {

inline constexpr sa_family_t kFamilyIb = 27;  // AF_IB

/// One end of a connection.
struct Endpoint {
  sa_family_t family = AF_UNSPEC;
  wire::Gid gid;  ///< zero: any address
  uint16_t port = 0;
  /// AF_IB only: the port space that its service ID names, and 0 where it names none.
  uint16_t port_space = 0;

  [[nodiscard]] bool is_any() const { return gid.is_zero() || gid == wire::Gid::from_ipv4(0); }
};

/// As rdma_addr_size() of the kernel: 0 for other families.
[[nodiscard]] size_t address_bytes(sa_family_t family);

/// Nothing where the family is another, or the address is longer than `bytes`.
[[nodiscard]] std::optional<Endpoint> read_endpoint(std::span<const uint8_t> bytes);
/// Returns how long it is; 0 for an endpoint without a family. `port_space` is the identifier's.
size_t write_endpoint(const Endpoint& endpoint, uint16_t port_space, std::span<uint8_t> bytes);
/// As sockaddr_ib, whatever family it has.
size_t write_ib_endpoint(const Endpoint& endpoint, uint16_t port_space, std::span<uint8_t> bytes);

}  // namespace faultline::abi
