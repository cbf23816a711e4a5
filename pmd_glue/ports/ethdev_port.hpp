// SPDX-License-Identifier: BSD-3-Clause
// A port on a DPDK Ethernet device: the steps that all drivers share, in their order, and the hooks between
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "pmd_glue/ports/port.hpp"
#include "stack/base/spin_lock.hpp"

struct rte_eth_conf;
struct rte_eth_dev_info;

namespace faultline::glue {

/// Parameters of open() for a driver; valid during open().
struct PortSetup {
  const Config& config;
  const DeviceConfig& device;
};

/// Reason why a port cannot be opened. `key` is relative to "device."; empty: the key that names the port.
struct PortFault {
  std::string message;
  std::string key = {};
};
/// Empty if a step succeeded.
using PortResult = std::optional<PortFault>;

class EthdevPort : public EthernetPort {
 public:
  /// Calls the hooks in the order of their declaration, with DPDK's functions between them.
  [[nodiscard]] PortResult start(const PortSetup& setup);
  ~EthdevPort() override;

  [[nodiscard]] size_t receive(uint16_t queue, std::span<rte_mbuf*> burst) override;
  [[nodiscard]] size_t transmit(uint32_t core, std::span<rte_mbuf*> burst) override;
  [[nodiscard]] bool link_up() const override;
  [[nodiscard]] PortDrops drops() const override;
  [[nodiscard]] bool is_gone() const override;
  void receive_for_all() override;
  void reconnect() override;

 protected:
  EthdevPort() = default;

  // --- hooks, in the order of start() ---

  /// Checks the port's prerequisites, before the device exists.
  [[nodiscard]] virtual PortResult prepare(const PortSetup& setup);
  /// Creates the device. The default probes a virtual device with vdev_arguments() and stores its name in
  /// vdev_.
  [[nodiscard]] virtual PortResult create(const PortSetup& setup);
  /// The arguments of a virtual device (DPDK's NIC guides).
  [[nodiscard]] virtual std::string vdev_arguments(const PortSetup& setup) const;
  /// Returns the pool of receive buffers; nullptr with a fault.
  [[nodiscard]] virtual rte_mempool* make_pool(const PortSetup& setup, PortResult& fault);
  /// Adjusts the configuration for this kind, and queue_pairs_.
  [[nodiscard]] virtual PortResult adjust(const PortSetup& setup, const rte_eth_dev_info& info,
                                          rte_eth_conf& conf);
  /// Called instead of rte_eth_tx_queue_setup; returns its result.
  [[nodiscard]] virtual int set_up_transmit_queue(uint16_t queue, uint16_t descriptors);
  /// Called after the device has started.
  [[nodiscard]] virtual PortResult finish(const PortSetup& setup);

  /// Runs `function` on the thread on which the driver must be created, started and stopped.
  virtual void run_control(const std::function<void()>& function);
  /// Called after the device was closed, on the thread of run_control().
  virtual void after_close() {}
  /// True if a port that cannot start yet still counts as open.
  [[nodiscard]] virtual bool may_start_later() const { return false; }
  /// Returns drops that the driver's own statistics omit.
  [[nodiscard]] virtual uint64_t uncounted_drops() const { return 0; }

  // --- for drivers ---

  /// Stops and closes the device, once. A driver that overrides run_control() or after_close() calls it in
  /// its destructor.
  void close_device();
  /// Attaches to the device of that name, once it exists.
  [[nodiscard]] PortResult adopt(const std::string& name);
  [[nodiscard]] PortResult receive_for_any_address();

  std::string vdev_;  ///< name on the virtual bus; empty for PCI

 private:
  [[nodiscard]] PortResult configure(const PortSetup& setup);
  bool created_ = false;
  bool shares_transmit_queues_ = false;
  SpinLock transmit_lock_;
};

/// Returns the text of a DPDK error number, of either sign.
[[nodiscard]] std::string reason_of(int error);

/// Returns a name that is unique to a forked child, in which the names of inherited devices and rings are
/// taken.
[[nodiscard]] std::string own_name(std::string name);

/// Descriptors of a queue, and of a ring between two ports.
inline constexpr uint16_t kPortDescriptors = 1024;

/// The key of a fault that concerns EAL, not the device: too little memory.
inline constexpr std::string_view kPoolKey = "eal.memory_mib";

}  // namespace faultline::glue
