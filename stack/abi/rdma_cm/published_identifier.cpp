// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/rdma_cm/published_identifier.hpp"

#include <array>

#include "stack/abi/rdma_cm/core.hpp"

namespace faultline::abi {
namespace {

/// Returns the number in Linux's enum rdma_cm_state (include/rdma/rdma_cm.h).
uint8_t kernel_state(IdState state) {
  switch (state) {
    case IdState::idle:
      return 0;
    case IdState::resolving_address:
      return 1;
    case IdState::address_resolved:
      return 2;
    case IdState::route_resolved:
      return 4;
    case IdState::connected:
      return 5;
    case IdState::disconnected:
      return 6;
    case IdState::bound:
      return 7;
    case IdState::listening:
      return 8;
    case IdState::count_:
      break;
  }
  return 0;
}

/// Returns a sockaddr_in or sockaddr_in6. An address of AF_IB is shown as the IP address that its GID has.
std::array<uint8_t, 32> address_of(Endpoint endpoint) {
  std::array<uint8_t, 32> bytes{};
  if (endpoint.family == kFamilyIb) endpoint.family = endpoint.gid.is_ipv4() ? AF_INET : AF_INET6;
  static_cast<void>(write_endpoint(endpoint, 0, bytes));
  return bytes;
}

status::CmRow row_of(const Identifier& identifier, uint64_t created_ns) {
  status::CmRow row;
  row.created_ns = created_ns;
  row.source = address_of(identifier.source);
  row.destination = address_of(identifier.destination);
  row.id = static_cast<uint32_t>(identifier.key);
  row.qpn = identifier.qpn;
  row.port_space = identifier.port_space;
  row.state = kernel_state(identifier.state);
  row.qp_type = static_cast<uint8_t>(identifier.type);
  return row;
}

}  // namespace

void PublishedIdentifier::write(const Identifier& identifier) {
  const auto publish_in = [&](CmDevice& device) {
    rows_.push_back(std::make_unique<verbs::Published<status::CmRow>>());
    rows_.back()->publish(device.status(), row_of(identifier, device.now()));
  };
  if (!rows_.empty()) {
    for (const auto& published : rows_)
      published->update([&](status::CmRow& row) { row = row_of(identifier, row.created_ns); });
  } else if (identifier.device != nullptr) {
    publish_in(*identifier.device);
  } else {
    for (const Identifier::Listener& listener : identifier.listeners) publish_in(*listener.device);
  }
}

}  // namespace faultline::abi
