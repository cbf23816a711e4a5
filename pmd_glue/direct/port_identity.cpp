// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/direct/port_identity.hpp"

#include <rte_bus_vdev.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ring.h>
#include <spdlog/fmt/fmt.h>

#include "pmd_glue/ports/ethdev_port.hpp"

namespace faultline::glue {

std::unique_ptr<PortIdentity> PortIdentity::create(const std::string& name, std::string& error) {
  constexpr unsigned kLeastEntries = 2;
  const std::string own = own_name("fl_wire_" + name);
  rte_ring* ring = rte_ring_create(own.c_str(), kLeastEntries, SOCKET_ID_ANY, 0);
  const int created = ring != nullptr ? rte_eth_from_rings(own.c_str(), &ring, 1, &ring, 1, 0) : -rte_errno;
  if (created < 0) {
    rte_ring_free(ring);
    error = reason_of(created);
    return nullptr;
  }
  return std::unique_ptr<PortIdentity>(
      new PortIdentity(ring, static_cast<uint16_t>(created), "net_ring_" + own));
}

PortIdentity::~PortIdentity() {
  rte_eth_dev_close(id_);
  rte_vdev_uninit(vdev_.c_str());
  rte_ring_free(ring_);
}

}  // namespace faultline::glue
