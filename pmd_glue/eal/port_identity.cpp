// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/eal/port_identity.hpp"

#include <cstdlib>

#include <rte_bus_vdev.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ring.h>

namespace faultline::glue {

std::unique_ptr<PortIdentity> PortIdentity::create(const std::string& name, std::string& error) {
  constexpr unsigned kLeastEntries = 2;
  rte_ring* ring = rte_ring_create(name.c_str(), kLeastEntries, SOCKET_ID_ANY, 0);
  const int created = ring != nullptr ? rte_eth_from_rings(name.c_str(), &ring, 1, &ring, 1, 0) : -rte_errno;
  if (created < 0) {
    rte_ring_free(ring);
    error = rte_strerror(created == -1 && rte_errno != 0 ? rte_errno : std::abs(created));
    return nullptr;
  }
  return std::unique_ptr<PortIdentity>(
      new PortIdentity(ring, static_cast<uint16_t>(created), "net_ring_" + name));
}

PortIdentity::~PortIdentity() {
  rte_eth_dev_close(id_);
  rte_vdev_uninit(vdev_.c_str());
  rte_ring_free(ring_);
}

}  // namespace faultline::glue
