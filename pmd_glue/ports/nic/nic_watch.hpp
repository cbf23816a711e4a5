// SPDX-License-Identifier: BSD-3-Clause
// What a NIC reports of itself: that it is removed, or that it needs a reset. EAL's interrupt thread reports,
// under locks of the PMD, so it only sets flags. The port's owner reads them at its own time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <rte_dev.h>
#include <rte_ethdev.h>

namespace faultline::glue {

class NicWatch {
 public:
  /// Begins with an open port. `device` is its name on the bus: vfio-pci reports a removal by that name, not
  /// by the port (EAL's handler of VFIO's "req" interrupt). The kernel waits until the device is closed.
  NicWatch(uint16_t port, std::string device);
  /// Waits for a report that is under way. Must not be called on EAL's interrupt thread.
  ~NicWatch();
  NicWatch(const NicWatch&) = delete;
  NicWatch& operator=(const NicWatch&) = delete;

  // --- any thread ---
  [[nodiscard]] bool is_removed() const { return is_removed_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool needs_reset() const { return needs_reset_.load(std::memory_order_relaxed); }
  void request_reset() { needs_reset_.store(true, std::memory_order_relaxed); }
  void take_reset_request() { needs_reset_.store(false, std::memory_order_relaxed); }

 private:
  // Called by EAL's interrupt thread.
  static int on_port_event(uint16_t port, rte_eth_event_type event, void* self, void* result);
  static void on_bus_event(const char* device, rte_dev_event_type event, void* self);

  const uint16_t port_;
  const std::string device_;
  std::atomic<bool> is_removed_{false};
  std::atomic<bool> needs_reset_{false};
};

}  // namespace faultline::glue
