// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/rdma_cm/endpoint.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include <endian.h>
#include <linux/types.h>
#include <netinet/in.h>

namespace faultline::abi {

namespace {

/// struct sockaddr_ib of the kernel's rdma/ib.h.
struct IbAddress {
  uint16_t family;
  __be16 pkey;
  __be32 flow_information;
  std::array<uint8_t, 16> address;
  __be64 service_id, service_mask;
  uint64_t scope_id;
};
static_assert(sizeof(IbAddress) == 48);

constexpr unsigned kPortSpaceShift = 16;

template <typename Address>
Address read_as(std::span<const uint8_t> bytes) {
  Address address;
  std::memcpy(&address, bytes.data(), sizeof address);
  return address;
}
template <typename Address>
size_t write_as(const Address& address, std::span<uint8_t> bytes) {
  assert(bytes.size() >= sizeof address);
  std::memcpy(bytes.data(), &address, sizeof address);
  return sizeof address;
}

}  // namespace

size_t address_bytes(sa_family_t family) {
  switch (family) {
    case AF_INET:
      return sizeof(sockaddr_in);
    case AF_INET6:
      return sizeof(sockaddr_in6);
    case kFamilyIb:
      return sizeof(IbAddress);
    default:
      return 0;
  }
}

std::optional<Endpoint> read_endpoint(std::span<const uint8_t> bytes) {
  Endpoint endpoint;
  if (bytes.size() < sizeof endpoint.family) return std::nullopt;
  std::memcpy(&endpoint.family, bytes.data(), sizeof endpoint.family);
  const size_t length = address_bytes(endpoint.family);
  if (length == 0 || length > bytes.size()) return std::nullopt;
  if (endpoint.family == AF_INET) {
    const auto address = read_as<sockaddr_in>(bytes);
    endpoint.gid = wire::Gid::from_ipv4(be32toh(address.sin_addr.s_addr));
    endpoint.port = be16toh(address.sin_port);
  } else if (endpoint.family == AF_INET6) {
    const auto address = read_as<sockaddr_in6>(bytes);
    std::memcpy(endpoint.gid.bytes.data(), &address.sin6_addr, endpoint.gid.bytes.size());
    endpoint.port = be16toh(address.sin6_port);
  } else {
    const auto address = read_as<IbAddress>(bytes);
    endpoint.gid.bytes = address.address;
    const uint64_t service = be64toh(address.service_id) & be64toh(address.service_mask);
    endpoint.port = static_cast<uint16_t>(service);
    endpoint.port_space = static_cast<uint16_t>(service >> kPortSpaceShift);
  }
  return endpoint;
}

size_t write_endpoint(const Endpoint& endpoint, uint16_t port_space, std::span<uint8_t> bytes) {
  if (endpoint.family == AF_INET) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htobe16(endpoint.port);
    address.sin_addr.s_addr = htobe32(endpoint.gid.ipv4());
    return write_as(address, bytes);
  }
  if (endpoint.family == AF_INET6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htobe16(endpoint.port);
    std::memcpy(&address.sin6_addr, endpoint.gid.bytes.data(), endpoint.gid.bytes.size());
    return write_as(address, bytes);
  }
  return endpoint.family == kFamilyIb ? write_ib_endpoint(endpoint, port_space, bytes) : 0;
}

size_t write_ib_endpoint(const Endpoint& endpoint, uint16_t port_space, std::span<uint8_t> bytes) {
  IbAddress address{};
  address.family = kFamilyIb;
  address.pkey = htobe16(wire::kDefaultPkey);
  address.address = endpoint.gid.bytes;
  const uint64_t space = endpoint.port_space != 0 ? endpoint.port_space : port_space;
  address.service_id = htobe64(space << kPortSpaceShift | endpoint.port);
  address.service_mask = ~uint64_t{0};
  return write_as(address, bytes);
}

}  // namespace faultline::abi
