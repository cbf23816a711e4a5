// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/ports/ethdev_port.hpp"

#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <utility>

#include <rte_bus_vdev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <spdlog/fmt/fmt.h>

#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/ports/driver.hpp"
#include "stack/base/process/fork_generation.hpp"

namespace faultline::glue {

std::string reason_of(int error) {
  if (error == -1 && rte_errno != 0) error = rte_errno;
  return rte_strerror(std::abs(error));
}

std::string own_name(std::string name) {
  const uint32_t generation = fork_generation();
  return generation == 0 ? std::move(name) : fmt::format("{}_{}", name, generation);
}

EthdevPort::~EthdevPort() {
  close_device();
}

PortResult EthdevPort::start(const PortSetup& setup) {
  cores_ = core_count_of(setup.device);
  if (auto fault = prepare(setup)) return fault;
  if (auto fault = create(setup)) return fault;
  return configure(setup);
}

PortResult EthdevPort::prepare(const PortSetup& /*setup*/) {
  return {};
}

PortResult EthdevPort::create(const PortSetup& setup) {
  const std::string_view kind = name_of(setup.device.port.kind);
  const std::string name = own_name(fmt::format("net_{}_{}", kind, setup.device.name));
  int created = 0;
  run_control([&] { created = rte_vdev_init(name.c_str(), vdev_arguments(setup).c_str()); });
  if (created != 0) return PortFault{fmt::format("cannot create the {} port: {}", kind, reason_of(created))};
  vdev_ = name;
  return adopt(name);
}

std::string EthdevPort::vdev_arguments(const PortSetup& /*setup*/) const {
  return {};
}

PortResult EthdevPort::adopt(const std::string& name) {
  if (rte_eth_dev_get_port_by_name(name.c_str(), &id_) != 0)
    return PortFault{fmt::format(
        "no port came up on {}: no PMD of this build drives it, or EAL refused it (see its lines)", name)};
  created_ = true;
  return {};
}

rte_mempool* EthdevPort::make_pool(const PortSetup& setup, PortResult& fault) {
  rte_mempool* const pool = frame_pool(setup.config, socket_);
  if (pool == nullptr)
    fault = {fmt::format("{} MiB do not hold the frame buffers; give more", setup.config.eal.memory_mib),
             std::string(kPoolKey)};
  return pool;
}

PortResult EthdevPort::adjust(const PortSetup& /*setup*/, const rte_eth_dev_info& /*info*/,
                              rte_eth_conf& /*conf*/) {
  return {};
}

int EthdevPort::set_up_transmit_queue(uint16_t queue, uint16_t descriptors) {
  return rte_eth_tx_queue_setup(id_, queue, descriptors, static_cast<unsigned>(socket_), nullptr);
}

PortResult EthdevPort::finish(const PortSetup& /*setup*/) {
  return {};
}

void EthdevPort::run_control(const std::function<void()>& function) {
  function();
}

PortResult EthdevPort::configure(const PortSetup& setup) {
  PortResult fault;
  pool_ = make_pool(setup, fault);
  if (pool_ == nullptr) return fault;

  rte_eth_dev_info info{};
  int result = rte_eth_dev_info_get(id_, &info);
  if (result != 0) return PortFault{fmt::format("the port reports no properties: {}", reason_of(result))};

  rte_eth_conf conf{};
  udp_checksum_ = setup.config.udp_checksum && (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) != 0;
  // Alone it is not worth the request to the PMD, of which each frame needs one: the checksum costs less.
  ipv4_checksum_ = udp_checksum_ && (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) != 0;
  if (ipv4_checksum_) conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
  if (udp_checksum_) conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
  conf.rxmode.offloads = info.rx_offload_capa & (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM |
                                                 RTE_ETH_RX_OFFLOAD_UDP_CKSUM | RTE_ETH_RX_OFFLOAD_SCATTER);
  // Some virtual ports advertise 1518 and carry any length; the kernel's interface has the real MTU.
  conf.rxmode.mtu = kEthernetMtuBytes;
  if ((fault = adjust(setup, info, conf))) return fault;

  const std::string_view kind = name_of(setup.device.port.kind);
  bool is_configured = false;
  do {
    result = set_up_queues(conf);
    is_configured = result == 0;
    if (is_configured) run_control([&] { result = rte_eth_dev_start(id_); });
    started_ = is_configured && result == 0;
  } while (!started_ && relax(conf));
  if (!is_configured)
    return PortFault{fmt::format("cannot configure the {} port: {}", kind, reason_of(result))};
  conf_ = std::make_shared<rte_eth_conf>(conf);
  if (!started_ && !may_start_later())
    return PortFault{fmt::format("cannot start the {} port: {}", kind, reason_of(result))};
  return finish(setup);
}

int EthdevPort::set_up_queues(const rte_eth_conf& conf) {
  shares_transmit_queues_ = queue_pairs_ < cores_;
  int result = 0;
  run_control([&] { result = rte_eth_dev_configure(id_, queue_pairs_, queue_pairs_, &conf); });
  uint16_t rx_descriptors = kPortDescriptors;
  uint16_t tx_descriptors = kPortDescriptors;
  if (result == 0) result = rte_eth_dev_adjust_nb_rx_tx_desc(id_, &rx_descriptors, &tx_descriptors);
  for (uint16_t queue = 0; result == 0 && queue < queue_pairs_; ++queue) {
    result =
        rte_eth_rx_queue_setup(id_, queue, rx_descriptors, static_cast<unsigned>(socket_), nullptr, pool_);
    if (result == 0) result = set_up_transmit_queue(queue, tx_descriptors);
  }
  return result;
}

PortResult EthdevPort::receive_for_any_address() {
  if (const int result = rte_eth_promiscuous_enable(id_); result != 0)
    return PortFault{fmt::format("cannot receive for the device's MAC address: {}", reason_of(result))};
  return {};
}

void EthdevPort::receive_for_all() {
  rte_eth_promiscuous_enable(id_);
}

size_t EthdevPort::receive(uint16_t queue, std::span<rte_mbuf*> burst) {
  return rte_eth_rx_burst(id_, queue, burst.data(), static_cast<uint16_t>(burst.size()));
}

size_t EthdevPort::transmit(uint32_t core, std::span<rte_mbuf*> burst) {
  const auto queue = static_cast<uint16_t>(core % queue_pairs_);
  const auto count = static_cast<uint16_t>(burst.size());
  if (!shares_transmit_queues_) return rte_eth_tx_burst(id_, queue, burst.data(), count);
  const std::lock_guard guard(transmit_lock_);
  return rte_eth_tx_burst(id_, queue, burst.data(), count);
}

bool EthdevPort::link_up() const {
  rte_eth_link link{};
  return started_ && rte_eth_link_get_nowait(id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

PortDrops EthdevPort::drops() const {
  rte_eth_stats stats{};
  if (!created_) return {};
  if (rte_eth_stats_get(id_, &stats) != 0) return {};
  return {.missed = stats.imissed + uncounted_drops(), .no_buffer = stats.rx_nombuf};
}

bool EthdevPort::is_gone() const {
  return rte_eth_dev_is_removed(id_) == 1;
}

void EthdevPort::reconnect() {
  run_control([this] {
    if (started_) rte_eth_dev_stop(id_);
    started_ = rte_eth_dev_start(id_) == 0;
  });
}

int EthdevPort::restart_from_reset() {
  int result = 0;
  run_control([&] {
    result = rte_eth_dev_reset(id_);
    // A PMD without a reset of its own sets the NIC up anew at each start.
    if (result == -ENOTSUP) result = rte_eth_dev_stop(id_);
  });
  if (result == 0) result = set_up_queues(*conf_);
  if (result == 0) run_control([&] { result = rte_eth_dev_start(id_); });
  started_ = result == 0;
  return result;
}

void EthdevPort::close_device() {
  if (!created_ && vdev_.empty()) return;
  // A driver that overrides these two has called this function in its own destructor, before the base
  // class's. NOLINTNEXTLINE(clang-analyzer-optin.cplusplus.VirtualCall)
  run_control([this] {
    if (created_) {
      if (started_) rte_eth_dev_stop(id_);
      rte_eth_dev_close(id_);
    }
    if (!vdev_.empty()) rte_vdev_uninit(vdev_.c_str());
    created_ = started_ = false;
    vdev_.clear();
    after_close();  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as above
  });
}

}  // namespace faultline::glue
