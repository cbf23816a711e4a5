// SPDX-License-Identifier: BSD-3-Clause
// A NIC bound to vfio-pci, with its PMD in DPDK.
#include <algorithm>

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <spdlog/fmt/fmt.h>

#include "pmd_glue/ports/driver.hpp"

namespace faultline::glue {
namespace {

uint32_t pci_mtu_bytes(const DeviceConfig& device) {
  return device.mtu_bytes.value_or(kEthernetMtuBytes);
}

class Pci final : public EthdevPort {
  // EAL has probed the address when it started.
  PortResult create(const PortSetup& setup) override { return adopt(setup.device.port.address); }

  PortResult adjust(const PortSetup& setup, const rte_eth_dev_info& info, rte_eth_conf& conf) override {
    conf.rxmode.mtu = pci_mtu_bytes(setup.device);
    if (conf.rxmode.mtu > info.max_mtu)
      return PortFault{fmt::format("the port takes at most {}", info.max_mtu), "mtu"};
    const uint32_t most = std::min(info.max_rx_queues, info.max_tx_queues);
    queue_pairs_ = static_cast<uint16_t>(std::min(cores_, most));
    // A flow stays on one queue: its packets must not overtake each other.
    constexpr uint64_t kByFlow = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP;
    if (queue_pairs_ > 1 && (info.flow_type_rss_offloads & kByFlow) != 0) {
      conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
      conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & kByFlow;
    }
    return {};
  }

  PortResult finish(const PortSetup& setup) override {
    rte_ether_addr mac;
    std::copy(setup.device.mac.bytes.begin(), setup.device.mac.bytes.end(), mac.addr_bytes);
    // Neighbour solicitations and multicast groups use multicast addresses; the engine's address filter
    // selects among them.
    if (rte_eth_dev_default_mac_addr_set(id_, &mac) == 0 && rte_eth_allmulticast_enable(id_) == 0) return {};
    return receive_for_any_address();
  }
};

}  // namespace

const PortDriver kPciDriver{
    .kind = PortKind::pci,
    .make = [](const PortSetup&) -> std::unique_ptr<EthdevPort> { return std::make_unique<Pci>(); },
    .mtu_bytes = pci_mtu_bytes,
};

}  // namespace faultline::glue
