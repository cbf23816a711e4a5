// SPDX-License-Identifier: BSD-3-Clause
// Conversion of the addresses that rdma_cm programs pass: sockaddr_in, sockaddr_in6 and sockaddr_ib.
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
  /// AF_IB only: the port space in the service ID; 0 if it has none.
  uint16_t port_space = 0;

  [[nodiscard]] bool is_any() const { return gid.is_zero() || gid == wire::Gid::from_ipv4(0); }
};

/// Returns the address length, as the kernel's rdma_addr_size(): 0 for other families.
[[nodiscard]] size_t address_bytes(sa_family_t family);

/// Returns nullopt for another family, or if the address is longer than `bytes`.
[[nodiscard]] std::optional<Endpoint> read_endpoint(std::span<const uint8_t> bytes);
/// Returns the length written; 0 for an endpoint without a family. `port_space` is the identifier's.
size_t write_endpoint(const Endpoint& endpoint, uint16_t port_space, std::span<uint8_t> bytes);
/// Writes a sockaddr_ib, regardless of the endpoint's family.
size_t write_ib_endpoint(const Endpoint& endpoint, uint16_t port_space, std::span<uint8_t> bytes);

}  // namespace faultline::abi
