// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/uplink/vfio_group.hpp"

#include <chrono>
#include <thread>

#include "apps/switch/uplink/predecessor.hpp"
#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/ports/pci_device.hpp"
#include "stack/base/log.hpp"

namespace faultline::switching {

void await_vfio_group(const glue::DeviceConfig& uplink) {
  if (!glue::row_of(uplink.port.kind).is_on_pci) return;
  const auto latest = std::chrono::steady_clock::now() + kPredecessorPatience;
  const std::string_view address = glue::pci_address_of(uplink.port.address);
  auto group = glue::busy_group(address);
  if (group)
    log().warn("waits for {}, the VFIO group of {}: another process has it", group->string(), address);
  while (group && std::chrono::steady_clock::now() < latest) {
    std::this_thread::sleep_for(kPredecessorPause);
    group = glue::busy_group(address);
  }
}

}  // namespace faultline::switching
