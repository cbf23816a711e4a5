// SPDX-License-Identifier: BSD-3-Clause
// A port on a DPDK Ethernet device: the steps that all drivers share, in their order, and the hooks between
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "pmd_glue/ports/driver_port.hpp"
#include "stack/base/spin_lock.hpp"

struct rte_eth_conf;
struct rte_eth_dev_info;

namespace faultline::glue {

class EthdevPort : public DriverPort {
 public:
  /// Calls the hooks in the order of their declaration, with DPDK's functions between them.
  [[nodiscard]] PortResult start(const PortSetup& setup) final;
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
  /// Called after the device refused `conf`. Returns true if it asks for less now, so that the caller tries
  /// again.
  [[nodiscard]] virtual bool relax(rte_eth_conf& /*conf*/) { return false; }
  /// Called instead of rte_eth_tx_queue_setup; returns its result.
  [[nodiscard]] virtual int set_up_transmit_queue(uint16_t queue, uint16_t descriptors);
  /// Called after the device has started.
  [[nodiscard]] virtual PortResult finish(const PortSetup& setup);

  /// Runs `function` on the thread on which the driver must be created, configured, started and stopped.
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
  /// Resets the device, sets its queues up and starts it, as at first. Returns 0 or a negative errno; the
  /// port is stopped then.
  [[nodiscard]] int restart_from_reset();
  /// Attaches to the device of that name, once it exists.
  [[nodiscard]] PortResult adopt(const std::string& name);
  [[nodiscard]] PortResult receive_for_any_address();

  std::string vdev_;                          ///< name on the virtual bus; empty for PCI
  std::shared_ptr<const rte_eth_conf> conf_;  ///< as the device has taken it
  int socket_ = -1;                           ///< NUMA node of buffers and queues; -1: any

 private:
  [[nodiscard]] PortResult configure(const PortSetup& setup);
  [[nodiscard]] int set_up_queues(const rte_eth_conf& conf);
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

}  // namespace faultline::glue
