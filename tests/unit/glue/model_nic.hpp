// SPDX-License-Identifier: BSD-3-Clause
// A model of a NIC's PMD, with the limits and refusals that a test sets. It is a net_ring port; the program
// wraps the control calls of ethdev (--wrap in meson.build), so the driver of kind pci runs unchanged.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ring.h>

namespace faultline::test {

/// Limits of a ring's descriptors.
struct RingLimits {
  uint16_t most = 4096;
  uint16_t least = 32;
  uint16_t alignment = 8;
};

/// What the PMD offers. The defaults are those of a NIC that offers everything.
struct NicTraits {
  uint16_t max_queues = 16;
  uint16_t min_mtu = 68;
  uint16_t max_mtu = 9000;
  uint32_t max_frame_bytes = 9018;  ///< max_rx_pktlen
  RingLimits rx_limits{};
  RingLimits tx_limits{};
  uint64_t rx_offloads =
      RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM | RTE_ETH_RX_OFFLOAD_SCATTER;
  uint64_t tx_offloads = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
  uint64_t hash_fields = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP;
  bool refuses_hash_fields = false;  ///< ENA: lists them, and fails if they are set
  bool refuses_rss = false;          ///< fails in any mode of RSS
  uint16_t reta_size = 128;
  bool has_reta_query = true;
  bool shows_key = true;
  bool reports_hash = false;       ///< in received mbufs
  bool spreads_by_default = true;  ///< false: all entries of a new table are queue 0
  bool has_mac_set = true;
  bool has_promiscuous = true;
  bool has_allmulticast = true;
  bool has_vlan_filter_call = true;
  bool has_removal_interrupt = false;
  bool has_reset = true;
  bool has_rx_interrupts = true;       ///< the operations
  bool refuses_rx_interrupts = false;  ///< fails if they are configured
  bool sends_rx_interrupts = true;     ///< false: the operations exist and the NIC sends none
  int socket = 0;
};

class ModelNic {
 public:
  /// Makes the port; EAL must run. One model exists at a time.
  explicit ModelNic(const NicTraits& traits);
  ~ModelNic();
  ModelNic(const ModelNic&) = delete;
  ModelNic& operator=(const ModelNic&) = delete;

  /// The name by which ethdev finds the port: an `address` for the driver of kind pci.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] uint16_t id() const { return id_; }
  /// Receives a frame of kind roce: hashes it, and puts it into its queue. False if the queue is full.
  [[nodiscard]] bool deliver(std::span<const uint8_t> frame, rte_mempool* pool);
  /// Raises the receive interrupt of a queue.
  void interrupt(uint16_t queue) const;
  /// Frees the transmitted frames, which the NIC holds until then; returns how many there were.
  unsigned complete_transmissions();
  /// Reports an event of the port, as a PMD does.
  void report(rte_eth_event_type event);
  /// Reports on the bus that the device is to be removed, as EAL does for VFIO.
  void request_removal() const;
  /// Returns the queue of a packet with this hash.
  [[nodiscard]] uint16_t queue_of(uint32_t hash) const { return reta[hash % reta.size()]; }

  const NicTraits traits;
  /// The key of the model's hash, which a PMD of a NIC with a fixed key shows and does not set.
  std::vector<uint8_t> key;
  rte_ether_addr mac{{0x02, 0x46, 0x4d, 0, 0, 9}};

  // What the driver has set.
  rte_eth_conf conf{};
  uint16_t queues = 0;
  uint16_t rx_descriptors = 0;
  uint16_t tx_descriptors = 0;
  uint32_t buffer_bytes = 0;   ///< of the receive buffers
  std::set<unsigned> sockets;  ///< NUMA nodes of the queues
  unsigned mac_sets = 0;
  bool is_started = false;
  bool is_promiscuous = false;
  bool is_allmulticast = false;
  std::set<uint16_t> vlans;
  std::vector<uint16_t> reta;
  unsigned reta_updates = 0;
  bool is_configured = false;
  /// Descriptors of the receive interrupts, and which queues are armed. A start arms all.
  std::array<int, 4> interrupts{-1, -1, -1, -1};
  std::array<std::atomic<bool>, 4> armed{};
  unsigned resets = 0;
  unsigned failing_resets = 0;  ///< how many of the next resets fail
  bool is_closed = false;
  bool is_given_back = false;  ///< its device was removed from the bus
  struct Callback {
    rte_eth_event_type event;
    rte_eth_dev_cb_fn function;
    void* argument;
    bool operator==(const Callback&) const = default;
  };
  std::vector<Callback> callbacks;
  const uint32_t device_flags;  ///< rte_eth_dev_info::dev_flags

 private:
  static constexpr unsigned kQueues = 4;
  std::string name_;
  uint16_t id_ = 0;
  std::array<rte_ring*, kQueues> received_{};
  std::array<rte_ring*, kQueues> sent_{};
};

}  // namespace faultline::test
