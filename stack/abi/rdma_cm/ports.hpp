// SPDX-License-Identifier: BSD-3-Clause
// Bindings of this process's identifiers to ports, per port space.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "stack/abi/rdma_cm/endpoint.hpp"

namespace faultline::abi {

class PortTable {
 public:
  explicit PortTable(uint64_t seed) : random_(seed) {}

  struct Options {
    bool reuse = false;        ///< RDMA_OPTION_ID_REUSEADDR
    bool family_only = false;  ///< RDMA_OPTION_ID_AFONLY
  };

  /// Binds `owner`; chooses a free port if the endpoint's port is 0. Returns 0, EADDRINUSE or EADDRNOTAVAIL,
  /// as the kernel does.
  [[nodiscard]] int bind(const void* owner, uint16_t port_space, Endpoint& endpoint, const Options& options);
  /// A listener shares its port with no other binding of an equivalent address.
  [[nodiscard]] int listen(const void* owner, uint16_t port_space, const Endpoint& endpoint);
  void release(const void* owner, uint16_t port_space, uint16_t port);

 private:
  struct Binding {
    const void* owner;
    Endpoint endpoint;
    Options options;
  };
  using Key = std::pair<uint16_t, uint16_t>;

  [[nodiscard]] static int check(const std::vector<Binding>& bindings, const Binding& wanted, bool reuse);

  std::map<Key, std::vector<Binding>> bindings_;
  std::minstd_rand random_;
};

}  // namespace faultline::abi
