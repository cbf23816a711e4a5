// SPDX-License-Identifier: BSD-3-Clause
// One DPDK port: created from the configuration, started, watched, and gone with the object. Bursts are the
// engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pmd_glue/config/config.hpp"
#include "pmd_glue/memif/memif_port.hpp"
#include "stack/base/spin_lock.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace faultline::glue {

/// The L3 MTU that the device's port will have, known before it is opened.
[[nodiscard]] uint32_t port_mtu_bytes(const DeviceConfig& device);

class EthernetPort {
 public:
  /// Creates, configures and starts. A memif client whose server is not there yet counts as open: see
  /// reconnect().
  [[nodiscard]] static std::unique_ptr<EthernetPort> open(const Config& config, const DeviceConfig& device,
                                                          std::string& error);
  ~EthernetPort();
  EthernetPort(const EthernetPort&) = delete;
  EthernetPort& operator=(const EthernetPort&) = delete;

  [[nodiscard]] uint16_t id() const { return id_; }

  // Queues. Where the port has a pair for each core (net_ring, net_af_packet, NICs), a core sends on its own
  // and receives from its own, or from several where the other end of the wire has more cores. Where it has
  // one pair (net_memif, net_tap, net_af_xdp), the first core receives, and sending takes a lock.
  [[nodiscard]] uint16_t receive_queues() const { return queue_pairs_; }
  /// Owner of a receive queue.
  [[nodiscard]] uint32_t receiver_of(uint16_t queue) const { return queue % cores_; }
  [[nodiscard]] size_t receive(uint16_t queue, std::span<rte_mbuf*> burst);
  [[nodiscard]] size_t transmit(uint32_t core, std::span<rte_mbuf*> burst);

  [[nodiscard]] rte_mempool* pool() const { return pool_; }
  [[nodiscard]] bool offloads_ipv4_checksum() const { return ipv4_checksum_; }
  [[nodiscard]] bool offloads_udp_checksum() const { return udp_checksum_; }
  /// Bursts are allowed. Changes in open() and reconnect() only.
  [[nodiscard]] bool started() const { return started_; }
  [[nodiscard]] bool link_up() const;
  /// Readable while frames wait in a receive queue; -1 where the port cannot tell.
  [[nodiscard]] int frames_descriptor(uint16_t queue) const {
    return queue < frames_descriptors_.size() ? frames_descriptors_[queue] : -1;
  }
  /// Frames that there was no room for; what the driver itself counts is not in it.
  [[nodiscard]] uint64_t uncounted_drops() const;
  /// Links that ended because the other end of shared memory broke their protocol.
  [[nodiscard]] uint64_t peer_violations() const;
  /// What the port stands on was removed: it will not come back.
  [[nodiscard]] bool is_gone() const;

  /// True for a port whose link, once down, comes up only by reconnect().
  [[nodiscard]] bool needs_reconnect() const { return memif_client_; }
  /// Stops and starts the port. Nobody may be in a burst, nor hold a lock that a burst is made under:
  /// EAL's interrupt thread does it for memif, and may be waiting for bursts to end
  /// (memif_gate.hpp).
  void reconnect();

 private:
  EthernetPort() = default;
  [[nodiscard]] bool configure(const Config& config, const DeviceConfig& device, std::string& error);

  /// Where the PMD wants to be started and stopped.
  template <typename Function>
  void on_control_thread(Function function);

  std::string vdev_;  ///< name on the vdev bus; empty for PCI
  uint16_t id_ = 0;
  bool created_ = false;
  bool started_ = false;
  bool memif_client_ = false;
  bool ipv4_checksum_ = false;
  bool udp_checksum_ = false;
  uint16_t queue_pairs_ = 1;
  uint32_t cores_ = 1;
  bool shares_transmit_queues_ = false;
  SpinLock transmit_lock_;
  std::unique_ptr<MemifPort> memif_;  ///< of a port of that kind
  rte_mempool* pool_ = nullptr;
  std::string interface_;
  unsigned interface_index_ = 0;  ///< of a kernel interface that the port is bound to
  uint64_t earlier_drops_ = 0;    ///< of another port of this process there, before this one
  int tap_descriptor_ = -1;
  std::vector<int> frames_descriptors_;  ///< by receive queue
};

/// Whether a port that is not open would find its link up: an interface of the kernel tells, others come up
/// with their port.
[[nodiscard]] bool expects_link(const PortConfig& config);

}  // namespace faultline::glue
