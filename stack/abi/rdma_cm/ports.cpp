// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/rdma_cm/ports.hpp"

#include <algorithm>
#include <cerrno>

namespace faultline::abi {

namespace {

// Default of net.ipv4.ip_local_port_range.
constexpr uint32_t kFirstFreePort = 32768, kLastFreePort = 60999;

}  // namespace

int PortTable::check(const std::vector<Binding>& bindings, const Binding& wanted, bool reuse) {
  for (const Binding& other : bindings) {
    if (other.owner == wanted.owner || (reuse && other.options.reuse)) continue;
    if (other.options.family_only && wanted.options.family_only &&
        other.endpoint.family != wanted.endpoint.family)
      continue;
    // The two errors are the kernel's (cma_check_port).
    if (other.endpoint.is_any() || wanted.endpoint.is_any()) return EADDRNOTAVAIL;
    if (other.endpoint.gid == wanted.endpoint.gid) return EADDRINUSE;
  }
  return 0;
}

int PortTable::bind(const void* owner, uint16_t port_space, Endpoint& endpoint, const Options& options) {
  if (endpoint.port == 0) {
    constexpr uint32_t kPorts = kLastFreePort - kFirstFreePort + 1;
    const uint32_t start = static_cast<uint32_t>(random_()) % kPorts;
    for (uint32_t i = 0; i < kPorts && endpoint.port == 0; ++i) {
      const auto port = static_cast<uint16_t>(kFirstFreePort + (start + i) % kPorts);
      if (!bindings_.contains({port_space, port})) endpoint.port = port;
    }
    if (endpoint.port == 0) return EADDRNOTAVAIL;
  }
  auto& bindings = bindings_[{port_space, endpoint.port}];
  const Binding wanted{owner, endpoint, options};
  if (const int error = check(bindings, wanted, options.reuse); error != 0) return error;
  bindings.push_back(wanted);
  return 0;
}

int PortTable::listen(const void* owner, uint16_t port_space, const Endpoint& endpoint) {
  const auto found = bindings_.find({port_space, endpoint.port});
  if (found == bindings_.end()) return EINVAL;
  const auto own = std::find_if(found->second.begin(), found->second.end(),
                                [&](const Binding& binding) { return binding.owner == owner; });
  if (own == found->second.end()) return EINVAL;
  if (const int error = check(found->second, *own, false); error != 0) return error;
  own->options.reuse = false;
  return 0;
}

void PortTable::release(const void* owner, uint16_t port_space, uint16_t port) {
  const auto found = bindings_.find({port_space, port});
  if (found == bindings_.end()) return;
  std::erase_if(found->second, [&](const Binding& binding) { return binding.owner == owner; });
  if (found->second.empty()) bindings_.erase(found);
}

}  // namespace faultline::abi
