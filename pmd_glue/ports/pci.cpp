// SPDX-License-Identifier: BSD-3-Clause
// A NIC bound to vfio-pci, with its PMD in DPDK. The PMDs differ in what they offer: this driver asks for
// what the PMD lists, and for less if the PMD still refuses.
#include <algorithm>
#include <bit>
#include <cerrno>

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/ports/driver.hpp"
#include "pmd_glue/ports/nic/nic_watch.hpp"
#include "pmd_glue/ports/nic/rx_interrupts.hpp"
#include "pmd_glue/ports/pci_device.hpp"
#include "pmd_glue/ports/rss_table.hpp"
#include "stack/base/log.hpp"

namespace faultline::glue {
namespace {

uint32_t pci_mtu_bytes(const DeviceConfig& device) {
  return device.mtu_bytes.value_or(kEthernetMtuBytes);
}

rte_ether_addr ether_address_of(const wire::MacAddress& mac) {
  rte_ether_addr address{};
  std::copy(mac.bytes.begin(), mac.bytes.end(), address.addr_bytes);
  return address;
}

wire::MacAddress mac_of_ethdev(const rte_ether_addr& address) {
  wire::MacAddress mac;
  std::copy_n(address.addr_bytes, mac.bytes.size(), mac.bytes.begin());
  return mac;
}

std::string text_of(const rte_ether_addr& address) {
  return fmt::format("{:02x}", fmt::join(address.addr_bytes, ":"));
}

/// Returns the bytes of a frame beside its L3 packet, as ethdev computes them for rte_eth_dev_configure.
uint32_t overhead_bytes(const rte_eth_dev_info& info) {
  if (info.max_mtu != UINT16_MAX && info.max_rx_pktlen > info.max_mtu)
    return info.max_rx_pktlen - info.max_mtu;
  return RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
}

class Pci final : public EthdevPort {
 public:
  [[nodiscard]] RssTable* flow_table() override { return table_ ? &*table_ : nullptr; }

  [[nodiscard]] bool is_gone() const override {
    return (watch_ && watch_->is_removed()) || EthdevPort::is_gone();
  }

  [[nodiscard]] int await_frames(uint16_t queue) override {
    return interrupts_ ? interrupts_->arm(queue) : -1;
  }
  void stop_awaiting_frames(uint16_t queue) override {
    if (interrupts_) interrupts_->disarm(queue);
  }
  void note_wake(uint16_t queue, bool reported, bool received) override {
    if (interrupts_) interrupts_->note_wake(queue, reported, received);
  }
  [[nodiscard]] bool has_interrupts() const override { return interrupts_.has_value(); }
  [[nodiscard]] bool may_rest() const override { return interrupts_ && interrupts_->is_proven(0); }

  void release() override {
    watch_.reset();
    forget_interrupts();
    close_device();
    if (device_ == nullptr) return;
    if (const int result = rte_dev_remove(device_); result != 0)
      log().warn("port {}: its device cannot be given back: {}", id_, reason_of(result));
  }

  /// ethdev restores addresses and modes at a start. A NIC may begin with an empty VLAN filter and a
  /// redirection table of its own.
  void reconnect() override {
    forget_interrupts();
    EthdevPort::reconnect();
    if (!started_) return;
    find_interrupts();
    restore_filters(0);
  }

  [[nodiscard]] bool needs_reset() const override { return watch_ && watch_->needs_reset(); }

  void reset() override {
    // A request that arrives from here on is for another reset.
    watch_->take_reset_request();
    forget_interrupts();
    const int result = restart_from_reset();
    if (result != 0) {
      watch_->request_reset();
      log().warn("port {}: its reset failed: {}", id_, reason_of(result));
      return;
    }
    find_interrupts();
    // A virtual function may get another address from its host at each reset.
    restore_filters(set_mac_ ? rte_eth_dev_default_mac_addr_set(id_, &*set_mac_) : 0);
  }

 private:
  void find_interrupts() {
    if (conf_->intr_conf.rxq != 0) interrupts_ = RxInterrupts::find(id_, queue_pairs_);
    if (interrupts_) frames_descriptors_ = interrupts_->descriptors();
  }
  /// The PMD closes the descriptors when the port stops.
  void forget_interrupts() {
    interrupts_.reset();
    frames_descriptors_.clear();
  }

  void restore_filters(int result) {
    if (result == 0 && filtered_vlan_) result = rte_eth_dev_vlan_filter(id_, *filtered_vlan_, 1);
    if (result == 0 && table_) result = table_->write();
    if (result != 0)
      log().warn("port {}: its filters did not come back after a restart: {}", id_, reason_of(result));
  }

  // EAL has probed the address when it started, with the PMD's arguments.
  PortResult create(const PortSetup& setup) override {
    const std::string address(pci_address_of(setup.device.port.address));
    if (auto fault = adopt(address)) {
      const EalConfig& eal = setup.config.eal;
      if (auto why = why_not_usable(address, {size_t{eal.memory_mib} << 20, eal.module_drivers}))
        return PortFault{std::move(*why)};
      return fault;
    }
    socket_ = rte_eth_dev_socket_id(id_);
    rte_eth_dev_info info{};
    if (rte_eth_dev_info_get(id_, &info) != 0 || info.device == nullptr) return {};
    device_ = info.device;
    watch_.emplace(id_, rte_dev_name(device_));
    return {};
  }

  PortResult adjust(const PortSetup& setup, const rte_eth_dev_info& info, rte_eth_conf& conf) override {
    if (auto fault = adjust_mtu(setup.device, info, conf)) return fault;
    receive_whole_frames(info, conf);
    conf.intr_conf.rmv = info.dev_flags != nullptr && (*info.dev_flags & RTE_ETH_DEV_INTR_RMV) != 0 ? 1 : 0;
    conf.intr_conf.rxq = 1;
    reta_size_ = info.reta_size;
    key_bytes_ = info.hash_key_size;
    const uint32_t most = std::min(info.max_rx_queues, info.max_tx_queues);
    queue_pairs_ = static_cast<uint16_t>(std::min(cores_, most));
    // A flow stays on one queue: its packets must not overtake each other.
    constexpr uint64_t kByFlow = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP;
    if (queue_pairs_ > 1 && (info.flow_type_rss_offloads & kByFlow) != 0) {
      // The PMD keeps its key: ENA's is fixed, and the lengths differ.
      conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
      conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & kByFlow;
      conf.rxmode.offloads |= info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_RSS_HASH;
    }
    if (setup.device.vlan_id) conf.rxmode.offloads |= info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_FILTER;
    filters_vlans_ = (conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_VLAN_FILTER) != 0;
    return {};
  }

  static PortResult adjust_mtu(const DeviceConfig& device, const rte_eth_dev_info& info, rte_eth_conf& conf) {
    uint32_t most = info.max_mtu;
    if (info.max_rx_pktlen > overhead_bytes(info))
      most = std::min(most, info.max_rx_pktlen - overhead_bytes(info));
    const uint32_t mtu = pci_mtu_bytes(device);
    if (mtu > most) return PortFault{fmt::format("the port takes at most {}", most), "mtu"};
    if (mtu < info.min_mtu) return PortFault{fmt::format("the port takes at least {}", info.min_mtu), "mtu"};
    conf.rxmode.mtu = mtu;
    // A PMD without scattered receive refuses frames longer than a buffer. No frame for this stack is longer.
    if ((info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER) == 0)
      conf.rxmode.mtu = std::min(mtu, kBufferBytes - overhead_bytes(info));
    return {};
  }

  /// Where no frame is longer than a buffer, PMDs have a cheaper function that receives one buffer a frame.
  /// Some use only a power of two of a buffer.
  void receive_whole_frames(const rte_eth_dev_info& info, rte_eth_conf& conf) const {
    const uint32_t buffer_bytes = uint32_t{rte_pktmbuf_data_room_size(pool_)} - RTE_PKTMBUF_HEADROOM;
    if (conf.rxmode.mtu + overhead_bytes(info) <= std::bit_floor(buffer_bytes))
      conf.rxmode.offloads &= ~RTE_ETH_RX_OFFLOAD_SCATTER;
  }

  // In this order: the PMD's own hash fields (ENA refuses to change them); no receive interrupts; its own
  // distribution over the queues; one queue.
  bool relax(rte_eth_conf& conf) override {
    if (queue_pairs_ == 1 && conf.intr_conf.rxq == 0) return false;
    if (conf.rx_adv_conf.rss_conf.rss_hf != 0)
      conf.rx_adv_conf.rss_conf.rss_hf = 0;
    else if (conf.intr_conf.rxq != 0)
      conf.intr_conf.rxq = 0;
    else if (conf.rxmode.mq_mode != RTE_ETH_MQ_RX_NONE)
      conf.rxmode.mq_mode = RTE_ETH_MQ_RX_NONE;
    else
      queue_pairs_ = 1;
    if (conf.rxmode.mq_mode == RTE_ETH_MQ_RX_NONE) conf.rxmode.offloads &= ~RTE_ETH_RX_OFFLOAD_RSS_HASH;
    return true;
  }

  PortResult finish(const PortSetup& setup) override {
    find_interrupts();
    spread_queues(setup.device);
    if (auto fault = receive_vlan(setup.device)) return fault;
    if (auto fault = receive_for_mac(setup.device)) return fault;
    receive_multicast(setup.device);
    return {};
  }

  /// Some PMDs take a redirection table only after the start, and begin with one queue for all.
  void spread_queues(const DeviceConfig& device) {
    if (queue_pairs_ == 1) return;
    table_ = RssTable::read(id_, reta_size_, key_bytes_);
    if (!table_ || table_->is_spread_over(queue_pairs_)) return;
    if (const int result = table_->spread_over(queue_pairs_); result != 0) {
      log().warn("{}: the NIC does not spread packets over {} queues: {}", device.name, queue_pairs_,
                 reason_of(result));
      table_.reset();
    }
  }

  /// virtio-net and virtual functions drop tagged frames of VLANs that are not in the filter.
  PortResult receive_vlan(const DeviceConfig& device) {
    if (!device.vlan_id) return {};
    int result = -ENOTSUP;
    if (filters_vlans_) result = rte_eth_dev_vlan_filter(id_, *device.vlan_id, 1);
    if (result == 0) filtered_vlan_ = device.vlan_id;
    if (result == 0 || rte_eth_promiscuous_enable(id_) == 0) return {};
    // Without a filter in the PMD's list, most NICs receive every VLAN.
    if (!filters_vlans_) return {};
    return PortFault{fmt::format("the NIC does not receive VLAN {}: {}", *device.vlan_id, reason_of(result)),
                     "vlan"};
  }

  PortResult receive_for_mac(const DeviceConfig& device) {
    rte_ether_addr own{};
    const bool has_own = rte_eth_macaddr_get(id_, &own) == 0 && rte_is_valid_assigned_ether_addr(&own) != 0;
    if (has_own && !device.has_configured_mac) {
      // Clouds drop frames from any other address.
      own_mac_ = mac_of_ethdev(own);
      return {};
    }
    rte_ether_addr wanted = ether_address_of(device.mac);
    if (has_own && rte_is_same_ether_addr(&own, &wanted) != 0) return {};
    const int result = rte_eth_dev_default_mac_addr_set(id_, &wanted);
    if (result == 0) set_mac_ = wanted;
    if (result == 0 || rte_eth_promiscuous_enable(id_) == 0) return {};
    if (!has_own) return PortFault{fmt::format("the NIC has no MAC address: {}", reason_of(result)), "mac"};
    return PortFault{
        fmt::format("the NIC receives for {} alone: {}; leave mac out", text_of(own), reason_of(result)),
        "mac"};
  }

  /// Neighbour solicitations and multicast groups use multicast addresses; the engine's address filter
  /// selects among them.
  void receive_multicast(const DeviceConfig& device) const {
    if (rte_eth_allmulticast_get(id_) == 1 || rte_eth_promiscuous_get(id_) == 1) return;
    const int result = rte_eth_allmulticast_enable(id_);
    if (result == 0 || rte_eth_promiscuous_enable(id_) == 0) return;
    log().warn("{}: the NIC receives no multicast: {}; UD multicast and IPv6 neighbour discovery fail",
               device.name, reason_of(result));
  }

  rte_device* device_ = nullptr;
  std::optional<NicWatch> watch_;
  std::optional<RxInterrupts> interrupts_;
  std::optional<rte_ether_addr> set_mac_;  ///< in place of the NIC's own
  uint16_t reta_size_ = 0;
  uint8_t key_bytes_ = 0;
  std::optional<uint16_t> filtered_vlan_;  ///< in the NIC's filter
  std::optional<RssTable> table_;
  bool filters_vlans_ = false;
};

}  // namespace

const PortDriver kPciDriver{
    .kind = PortKind::pci,
    .make = [](const PortSetup&) -> std::unique_ptr<DriverPort> { return std::make_unique<Pci>(); },
    .mtu_bytes = pci_mtu_bytes,
    .expects_link =
        [](const PortConfig& port) { return is_bound_to_user_space(pci_address_of(port.address)); },
};

}  // namespace faultline::glue
