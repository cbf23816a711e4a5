// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/glue/model_nic.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <rte_dev.h>
#include <rte_eth_ring.h>
#include <rte_mbuf.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "stack/wire/link/flow_hash.hpp"

using faultline::test::ModelNic;
using faultline::test::RingLimits;

namespace {

ModelNic* model = nullptr;

ModelNic* model_at(uint16_t port) {
  return model != nullptr && model->id() == port ? model : nullptr;
}

uint16_t within(const RingLimits& limits, uint16_t wanted) {
  const auto aligned =
      static_cast<uint16_t>((wanted + limits.alignment - 1) / limits.alignment * limits.alignment);
  return std::clamp(aligned, limits.least, limits.most);
}

bool is_within(const RingLimits& limits, uint16_t count) {
  return within(limits, count) == count;
}

rte_eth_desc_lim limits_of(const RingLimits& limits) {
  rte_eth_desc_lim all{};
  all.nb_max = limits.most;
  all.nb_min = limits.least;
  all.nb_align = limits.alignment;
  return all;
}

}  // namespace

// The names are the linker's (--wrap); ethdev's own calls among each other stay unwrapped.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

int __real_rte_eth_dev_info_get(uint16_t port, rte_eth_dev_info* info);
int __wrap_rte_eth_dev_info_get(uint16_t port, rte_eth_dev_info* info) {
  const int result = __real_rte_eth_dev_info_get(port, info);
  const ModelNic* const nic = model_at(port);
  if (result != 0 || nic == nullptr) return result;
  info->dev_flags = &nic->device_flags;
  info->min_mtu = nic->traits.min_mtu;
  info->max_mtu = nic->traits.max_mtu;
  info->max_rx_pktlen = nic->traits.max_frame_bytes;
  info->max_rx_queues = info->max_tx_queues = nic->traits.max_queues;
  info->rx_desc_lim = limits_of(nic->traits.rx_limits);
  info->tx_desc_lim = limits_of(nic->traits.tx_limits);
  info->rx_offload_capa = nic->traits.rx_offloads;
  info->tx_offload_capa = nic->traits.tx_offloads;
  info->flow_type_rss_offloads = nic->traits.hash_fields;
  info->reta_size = nic->traits.reta_size;
  info->hash_key_size = static_cast<uint8_t>(nic->key.size());
  return 0;
}

int __real_rte_eth_dev_configure(uint16_t port, uint16_t rx, uint16_t tx, const rte_eth_conf* conf);
int __wrap_rte_eth_dev_configure(uint16_t port, uint16_t rx, uint16_t tx, const rte_eth_conf* conf) {
  ModelNic* const nic = model_at(port);
  if (nic == nullptr) return __real_rte_eth_dev_configure(port, rx, tx, conf);
  const auto& traits = nic->traits;
  const uint64_t fields = conf->rx_adv_conf.rss_conf.rss_hf;
  const bool rss = conf->rxmode.mq_mode != RTE_ETH_MQ_RX_NONE;
  if (rx > traits.max_queues || tx > traits.max_queues) return -EINVAL;
  if (conf->rxmode.mtu < traits.min_mtu || conf->rxmode.mtu > traits.max_mtu) return -EINVAL;
  if ((conf->rxmode.offloads & ~traits.rx_offloads) != 0) return -EINVAL;
  if ((conf->txmode.offloads & ~traits.tx_offloads) != 0) return -EINVAL;
  if ((fields & ~traits.hash_fields) != 0 || conf->rx_adv_conf.rss_conf.rss_key != nullptr) return -EINVAL;
  if (conf->intr_conf.rmv != 0 && !traits.has_removal_interrupt) return -EINVAL;
  if (traits.refuses_rx_interrupts && conf->intr_conf.rxq != 0) return -ENOTSUP;
  if (traits.refuses_rss && rss) return -ENOTSUP;
  if (traits.refuses_hash_fields && fields != 0) return -ENOTSUP;
  rte_eth_conf below{};
  below.rxmode.mtu = std::min<uint32_t>(conf->rxmode.mtu, 1500);
  const int result = __real_rte_eth_dev_configure(port, rx, tx, &below);
  nic->conf = *conf;
  nic->queues = rx;
  nic->sockets.clear();
  nic->is_configured = result == 0;
  return result;
}

int __real_rte_eth_dev_adjust_nb_rx_tx_desc(uint16_t port, uint16_t* rx, uint16_t* tx);
int __wrap_rte_eth_dev_adjust_nb_rx_tx_desc(uint16_t port, uint16_t* rx, uint16_t* tx) {
  const ModelNic* const nic = model_at(port);
  if (nic == nullptr) return __real_rte_eth_dev_adjust_nb_rx_tx_desc(port, rx, tx);
  *rx = within(nic->traits.rx_limits, *rx);
  *tx = within(nic->traits.tx_limits, *tx);
  return 0;
}

int __real_rte_eth_rx_queue_setup(uint16_t port, uint16_t queue, uint16_t count, unsigned socket,
                                  const rte_eth_rxconf* conf, rte_mempool* pool);
int __wrap_rte_eth_rx_queue_setup(uint16_t port, uint16_t queue, uint16_t count, unsigned socket,
                                  const rte_eth_rxconf* conf, rte_mempool* pool) {
  if (ModelNic* const nic = model_at(port)) {
    const uint32_t buffer_bytes = rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM;
    const bool scatters = (nic->conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_SCATTER) != 0;
    if (!is_within(nic->traits.rx_limits, count)) return -EINVAL;
    if (!scatters && nic->conf.rxmode.mtu + RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN > buffer_bytes)
      return -EINVAL;
    nic->rx_descriptors = count;
    nic->buffer_bytes = buffer_bytes;
    nic->sockets.insert(socket);
  }
  return __real_rte_eth_rx_queue_setup(port, queue, count, socket, conf, pool);
}

int __real_rte_eth_tx_queue_setup(uint16_t port, uint16_t queue, uint16_t count, unsigned socket,
                                  const rte_eth_txconf* conf);
int __wrap_rte_eth_tx_queue_setup(uint16_t port, uint16_t queue, uint16_t count, unsigned socket,
                                  const rte_eth_txconf* conf) {
  if (ModelNic* const nic = model_at(port)) {
    if (!is_within(nic->traits.tx_limits, count)) return -EINVAL;
    nic->tx_descriptors = count;
    nic->sockets.insert(socket);
  }
  return __real_rte_eth_tx_queue_setup(port, queue, count, socket, conf);
}

int __real_rte_eth_dev_start(uint16_t port);
int __wrap_rte_eth_dev_start(uint16_t port) {
  ModelNic* const nic = model_at(port);
  if (nic != nullptr && !nic->is_configured) return -EINVAL;
  const int result = __real_rte_eth_dev_start(port);
  if (nic == nullptr) return result;
  nic->is_started = result == 0;
  for (std::atomic<bool>& armed : nic->armed) armed = nic->conf.intr_conf.rxq != 0;
  // As in many NICs, a start empties the filter and resets the table.
  nic->vlans.clear();
  nic->reta.assign(nic->traits.reta_size, 0);
  if (nic->traits.spreads_by_default && nic->conf.rxmode.mq_mode != RTE_ETH_MQ_RX_NONE)
    for (size_t i = 0; i < nic->reta.size(); ++i) nic->reta[i] = static_cast<uint16_t>(i % nic->queues);
  return result;
}

int __real_rte_eth_dev_reset(uint16_t port);
int __wrap_rte_eth_dev_reset(uint16_t port) {
  ModelNic* const nic = model_at(port);
  if (nic == nullptr) return __real_rte_eth_dev_reset(port);
  if (!nic->traits.has_reset) return -ENOTSUP;
  static_cast<void>(rte_eth_dev_stop(port));
  nic->is_started = nic->is_configured = false;
  if (nic->failing_resets != 0) {
    --nic->failing_resets;
    return -EIO;
  }
  // The host of a virtual function may give it another address.
  nic->mac.addr_bytes[4] = static_cast<uint8_t>(++nic->resets);
  return 0;
}

int __real_rte_eth_dev_close(uint16_t port);
int __wrap_rte_eth_dev_close(uint16_t port) {
  if (ModelNic* const nic = model_at(port)) {
    nic->is_started = false;
    nic->is_closed = true;
  }
  return __real_rte_eth_dev_close(port);
}

int __real_rte_dev_remove(rte_device* device);
int __wrap_rte_dev_remove(rte_device* device) {
  if (model == nullptr || model->name() != rte_dev_name(device)) return __real_rte_dev_remove(device);
  model->is_given_back = true;
  return 0;
}

int __wrap_rte_eth_dev_callback_register(uint16_t port, rte_eth_event_type event, rte_eth_dev_cb_fn function,
                                         void* argument) {
  ModelNic* const nic = model_at(port);
  if (nic == nullptr) return -ENODEV;
  nic->callbacks.push_back({event, function, argument});
  return 0;
}

int __wrap_rte_eth_dev_callback_unregister(uint16_t port, rte_eth_event_type event,
                                           rte_eth_dev_cb_fn function, void* argument) {
  ModelNic* const nic = model_at(port);
  return nic != nullptr && std::erase(nic->callbacks, ModelNic::Callback{event, function, argument}) == 1
             ? 0
             : -EINVAL;
}

int __wrap_rte_eth_dev_rx_intr_enable(uint16_t port, uint16_t queue) {
  ModelNic* const nic = model_at(port);
  if (nic == nullptr || !nic->traits.has_rx_interrupts) return -ENOTSUP;
  nic->armed[queue] = true;
  return 0;
}

int __wrap_rte_eth_dev_rx_intr_disable(uint16_t port, uint16_t queue) {
  ModelNic* const nic = model_at(port);
  if (nic == nullptr || !nic->traits.has_rx_interrupts) return -ENOTSUP;
  nic->armed[queue] = false;
  return 0;
}

int __wrap_rte_eth_dev_rx_intr_ctl_q_get_fd(uint16_t port, uint16_t queue) {
  const ModelNic* const nic = model_at(port);
  return nic == nullptr || nic->conf.intr_conf.rxq == 0 ? -1 : nic->interrupts[queue];
}

int __real_rte_eth_dev_socket_id(uint16_t port);
int __wrap_rte_eth_dev_socket_id(uint16_t port) {
  const ModelNic* const nic = model_at(port);
  return nic == nullptr ? __real_rte_eth_dev_socket_id(port) : nic->traits.socket;
}

int __real_rte_eth_macaddr_get(uint16_t port, rte_ether_addr* mac);
int __wrap_rte_eth_macaddr_get(uint16_t port, rte_ether_addr* mac) {
  const ModelNic* const nic = model_at(port);
  if (nic == nullptr) return __real_rte_eth_macaddr_get(port, mac);
  *mac = nic->mac;
  return 0;
}

int __real_rte_eth_dev_default_mac_addr_set(uint16_t port, rte_ether_addr* mac);
int __wrap_rte_eth_dev_default_mac_addr_set(uint16_t port, rte_ether_addr* mac) {
  ModelNic* const nic = model_at(port);
  if (nic == nullptr) return __real_rte_eth_dev_default_mac_addr_set(port, mac);
  if (!nic->traits.has_mac_set) return -ENOTSUP;
  nic->mac = *mac;
  ++nic->mac_sets;
  return 0;
}

int __real_rte_eth_promiscuous_enable(uint16_t port);
int __wrap_rte_eth_promiscuous_enable(uint16_t port) {
  ModelNic* const nic = model_at(port);
  if (nic == nullptr) return __real_rte_eth_promiscuous_enable(port);
  if (!nic->traits.has_promiscuous) return -ENOTSUP;
  nic->is_promiscuous = true;
  return 0;
}

int __real_rte_eth_promiscuous_get(uint16_t port);
int __wrap_rte_eth_promiscuous_get(uint16_t port) {
  const ModelNic* const nic = model_at(port);
  return nic == nullptr ? __real_rte_eth_promiscuous_get(port) : int{nic->is_promiscuous};
}

int __real_rte_eth_allmulticast_enable(uint16_t port);
int __wrap_rte_eth_allmulticast_enable(uint16_t port) {
  ModelNic* const nic = model_at(port);
  if (nic == nullptr) return __real_rte_eth_allmulticast_enable(port);
  if (!nic->traits.has_allmulticast) return -ENOTSUP;
  nic->is_allmulticast = true;
  return 0;
}

int __real_rte_eth_allmulticast_get(uint16_t port);
int __wrap_rte_eth_allmulticast_get(uint16_t port) {
  const ModelNic* const nic = model_at(port);
  return nic == nullptr ? __real_rte_eth_allmulticast_get(port) : int{nic->is_allmulticast};
}

int __real_rte_eth_dev_vlan_filter(uint16_t port, uint16_t vlan, int on);
int __wrap_rte_eth_dev_vlan_filter(uint16_t port, uint16_t vlan, int on) {
  ModelNic* const nic = model_at(port);
  if (nic == nullptr) return __real_rte_eth_dev_vlan_filter(port, vlan, on);
  if (!nic->traits.has_vlan_filter_call) return -ENOTSUP;
  // ethdev refuses the call while the offload is off.
  if ((nic->conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_VLAN_FILTER) == 0) return -ENOSYS;
  if (on != 0)
    nic->vlans.insert(vlan);
  else
    nic->vlans.erase(vlan);
  return 0;
}

int __real_rte_eth_dev_rss_reta_query(uint16_t port, rte_eth_rss_reta_entry64* groups, uint16_t size);
int __wrap_rte_eth_dev_rss_reta_query(uint16_t port, rte_eth_rss_reta_entry64* groups, uint16_t size) {
  const ModelNic* const nic = model_at(port);
  if (nic == nullptr) return __real_rte_eth_dev_rss_reta_query(port, groups, size);
  if (!nic->traits.has_reta_query) return -ENOTSUP;
  if (size != nic->traits.reta_size) return -EINVAL;
  for (uint16_t i = 0; i < size; ++i)
    if ((groups[i / 64].mask >> (i % 64) & 1) != 0) groups[i / 64].reta[i % 64] = nic->reta[i];
  return 0;
}

int __real_rte_eth_dev_rss_hash_conf_get(uint16_t port, rte_eth_rss_conf* conf);
int __wrap_rte_eth_dev_rss_hash_conf_get(uint16_t port, rte_eth_rss_conf* conf) {
  const ModelNic* const nic = model_at(port);
  if (nic == nullptr) return __real_rte_eth_dev_rss_hash_conf_get(port, conf);
  if (!nic->traits.shows_key) return -ENOTSUP;
  if (conf->rss_key_len < nic->key.size()) return -EINVAL;
  std::ranges::copy(nic->key, conf->rss_key);
  conf->rss_hf = nic->traits.hash_fields;
  return 0;
}

int __real_rte_eth_dev_rss_reta_update(uint16_t port, rte_eth_rss_reta_entry64* groups, uint16_t size);
int __wrap_rte_eth_dev_rss_reta_update(uint16_t port, rte_eth_rss_reta_entry64* groups, uint16_t size) {
  ModelNic* const nic = model_at(port);
  if (nic == nullptr) return __real_rte_eth_dev_rss_reta_update(port, groups, size);
  if (!nic->is_started) return -EBUSY;
  if (size != nic->traits.reta_size) return -EINVAL;
  for (uint16_t i = 0; i < size; ++i) {
    if ((groups[i / 64].mask >> (i % 64) & 1) == 0) continue;
    if (groups[i / 64].reta[i % 64] >= nic->queues) return -EINVAL;
    nic->reta[i] = groups[i / 64].reta[i % 64];
  }
  ++nic->reta_updates;
  return 0;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace faultline::test {

ModelNic::ModelNic(const NicTraits& wanted)
    : traits(wanted),
      key(40),
      device_flags(wanted.has_removal_interrupt ? static_cast<uint32_t>(RTE_ETH_DEV_INTR_RMV) : 0) {
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(0x6d + 41 * i * i + 7 * i);
  // A ring outlives its port: each model has rings of its own.
  static unsigned count = 0;
  const std::string number = std::to_string(count++);
  const auto make_ring = [&](const char* what, unsigned queue) {
    const std::string name = "model" + number + what + std::to_string(queue);
    rte_ring* const ring = rte_ring_create(name.c_str(), 1024, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
    if (ring == nullptr) throw std::runtime_error("no memory for the model's rings");
    return ring;
  };
  for (unsigned queue = 0; queue < kQueues; ++queue) {
    received_[queue] = make_ring("r", queue);
    sent_[queue] = make_ring("t", queue);
    interrupts[queue] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  }
  const int port =
      rte_eth_from_rings(("model" + number).c_str(), received_.data(), kQueues, sent_.data(), kQueues, 0);
  if (port < 0) throw std::runtime_error("no port for the model");
  id_ = static_cast<uint16_t>(port);
  name_ = "net_ring_model" + number;
  model = this;
}

ModelNic::~ModelNic() {
  model = nullptr;
  for (const int interrupt : interrupts) close(interrupt);
}

unsigned ModelNic::complete_transmissions() {
  unsigned count = 0;
  void* frame = nullptr;
  for (rte_ring* const ring : sent_)
    for (; rte_ring_dequeue(ring, &frame) == 0; ++count) rte_pktmbuf_free(static_cast<rte_mbuf*>(frame));
  return count;
}

void ModelNic::report(rte_eth_event_type event) {
  for (const Callback& callback : callbacks)
    if (callback.event == event) callback.function(id_, event, callback.argument, nullptr);
}

void ModelNic::request_removal() const {
  rte_dev_event_callback_process(name_.c_str(), RTE_DEV_EVENT_REMOVE);
}

void ModelNic::interrupt(uint16_t queue) const {
  const uint64_t one = 1;
  static_cast<void>(!write(interrupts[queue], &one, sizeof one));
}

bool ModelNic::deliver(std::span<const uint8_t> frame, rte_mempool* pool) {
  const uint32_t hash = wire::flow_hash(frame, key, true).value();
  rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool);
  if (mbuf == nullptr) return false;
  std::ranges::copy(
      frame, reinterpret_cast<uint8_t*>(rte_pktmbuf_append(mbuf, static_cast<uint16_t>(frame.size()))));
  if (traits.reports_hash) {
    mbuf->ol_flags |= RTE_MBUF_F_RX_RSS_HASH;
    mbuf->hash.rss = hash;
  }
  const uint16_t queue = queue_of(hash);
  if (rte_ring_enqueue(received_[queue], mbuf) == 0) {
    if (armed[queue] && traits.sends_rx_interrupts) interrupt(queue);
    return true;
  }
  rte_pktmbuf_free(mbuf);
  return false;
}

}  // namespace faultline::test
