// SPDX-License-Identifier: BSD-3-Clause
// net_ring: two ports of one process, connected by DPDK rings.
#include <algorithm>
#include <array>

#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ring.h>
#include <spdlog/fmt/fmt.h>

#include "pmd_glue/ports/driver.hpp"

namespace faultline::glue {
namespace {

rte_ring* ring_of(const PortConfig& port, bool towards_b, uint16_t queue) {
  const std::string name = own_name(fmt::format("fl_{}_{}{}", port.wire, towards_b ? "ab" : "ba", queue));
  if (rte_ring* ring = rte_ring_lookup(name.c_str())) return ring;
  return rte_ring_create(name.c_str(), kPortDescriptors, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

/// Returns the number of queues: one for each core of the end with more cores.
uint16_t queues_of_pair(const Config& config, const PortConfig& port) {
  uint32_t queues = 1;
  for (const DeviceConfig& device : config.devices)
    if (device.port.kind == port.kind && device.port.wire == port.wire)
      queues = std::max(queues, core_count_of(device));
  return static_cast<uint16_t>(queues);
}

class Ring final : public EthdevPort {
  PortResult create(const PortSetup& setup) override {
    const PortConfig& port = setup.device.port;
    queue_pairs_ = queues_of_pair(setup.config, port);
    std::array<rte_ring*, kMaxCores> out{};
    std::array<rte_ring*, kMaxCores> in{};
    for (uint16_t queue = 0; queue < queue_pairs_; ++queue) {
      out[queue] = ring_of(port, !port.side_b, queue);
      in[queue] = ring_of(port, port.side_b, queue);
      if (in[queue] == nullptr || out[queue] == nullptr)
        return PortFault{fmt::format("no memory for the rings: {}", rte_strerror(rte_errno))};
    }
    const std::string name = own_name(fmt::format("fl_{}", setup.device.name));
    const int created =
        rte_eth_from_rings(name.c_str(), in.data(), queue_pairs_, out.data(), queue_pairs_, 0);
    if (created < 0) return PortFault{fmt::format("cannot create the port: {}", reason_of(created))};
    vdev_ = fmt::format("net_ring_{}", name);
    return adopt(vdev_);
  }
};

}  // namespace

const PortDriver kRingDriver{
    .kind = PortKind::ring,
    .make = [](const PortSetup&) -> std::unique_ptr<DriverPort> { return std::make_unique<Ring>(); },
    .mtu_bytes = [](const DeviceConfig& device) { return device.mtu_bytes.value_or(kMemoryMtuBytes); },
    .child_may_open = true,
};

}  // namespace faultline::glue
