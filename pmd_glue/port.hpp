// SPDX-License-Identifier: BSD-3-Clause
// One DPDK port: created from the configuration, started, watched, and gone with the object. Bursts are the
// engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pmd_glue/config.hpp"

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
  [[nodiscard]] rte_mempool* pool() const { return pool_; }
  [[nodiscard]] bool offloads_ipv4_checksum() const { return ipv4_checksum_; }
  [[nodiscard]] bool offloads_udp_checksum() const { return udp_checksum_; }
  /// Bursts are allowed. Changes in open() and reconnect() only.
  [[nodiscard]] bool started() const { return started_; }
  [[nodiscard]] bool link_up() const;

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
  bool memif_ = false;
  bool memif_client_ = false;
  bool ipv4_checksum_ = false;
  bool udp_checksum_ = false;
  rte_mempool* pool_ = nullptr;
  std::string interface_;
};

}  // namespace faultline::glue
