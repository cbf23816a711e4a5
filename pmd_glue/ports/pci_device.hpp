// SPDX-License-Identifier: BSD-3-Clause
// What the kernel states of a device on PCI or VMBus, and what its user lacks to have it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace faultline::glue {

/// Where the kernel lists devices of both buses and VFIO groups; tests have folders of their own.
struct PciFolders {
  std::filesystem::path devices = "/sys/bus/pci/devices";
  std::filesystem::path groups = "/dev/vfio";
  std::filesystem::path vmbus = "/sys/bus/vmbus/devices";
};

/// Returns the name of the device's driver; empty: it has none.
[[nodiscard]] std::string kernel_driver_of(std::string_view address, const PciFolders& folders);

/// Returns whether the device exists and is bound to a driver that leaves it to a program.
[[nodiscard]] bool is_bound_to_user_space(std::string_view address, const PciFolders& folders = {});

/// Returns the file of the VFIO group of a device if another process has it open: a group has one user at a
/// time. nullopt if it is free, or if the device is not bound to vfio-pci.
[[nodiscard]] std::optional<std::filesystem::path> busy_group(std::string_view address,
                                                              const PciFolders& folders = {});

/// What a process has for DMA.
struct DmaUse {
  size_t locked_bytes = 0;
  std::span<const std::string> module_drivers = {};  ///< kernel drivers whose PMDs the process has loaded
};

/// Returns why a process cannot use a device, with the remedy; nullopt if no reason is known.
[[nodiscard]] std::optional<std::string> why_not_usable(std::string_view address, const DmaUse& use,
                                                        const PciFolders& folders = {});

}  // namespace faultline::glue
