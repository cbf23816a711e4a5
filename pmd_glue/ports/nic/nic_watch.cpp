// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/ports/nic/nic_watch.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <sched.h>

namespace faultline::glue {
namespace {

// A PMD that recovers by itself reports that it has failed for good; the port is as lost as a removed one.
constexpr std::array kEvents{RTE_ETH_EVENT_INTR_RMV, RTE_ETH_EVENT_RECOVERY_FAILED, RTE_ETH_EVENT_INTR_RESET};

}  // namespace

int NicWatch::on_port_event(uint16_t /*port*/, rte_eth_event_type event, void* self, void* /*result*/) {
  auto& watch = *static_cast<NicWatch*>(self);
  if (event == RTE_ETH_EVENT_INTR_RESET)
    watch.request_reset();
  else
    watch.is_removed_.store(true, std::memory_order_relaxed);
  return 0;
}

void NicWatch::on_bus_event(const char* /*device*/, rte_dev_event_type event, void* self) {
  if (event == RTE_DEV_EVENT_REMOVE)
    static_cast<NicWatch*>(self)->is_removed_.store(true, std::memory_order_relaxed);
}

NicWatch::NicWatch(uint16_t port, std::string device) : port_(port), device_(std::move(device)) {
  for (const rte_eth_event_type event : kEvents)
    static_cast<void>(rte_eth_dev_callback_register(port_, event, on_port_event, this));
  static_cast<void>(rte_dev_event_callback_register(device_.c_str(), on_bus_event, this));
}

NicWatch::~NicWatch() {
  // -EAGAIN: the callback runs.
  for (const rte_eth_event_type event : kEvents)
    while (rte_eth_dev_callback_unregister(port_, event, on_port_event, this) == -EAGAIN) sched_yield();
  while (rte_dev_event_callback_unregister(device_.c_str(), on_bus_event, this) == -EAGAIN) sched_yield();
}

}  // namespace faultline::glue
