// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/ports/pci_device.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/ports/host/interface_rights.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::glue {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kUserSpaceDrivers{"vfio-pci", "igb_uio", "uio_pci_generic"};
// They keep the NIC and give a PMD its queues (DPDK's guides for mlx4, mlx5 and mana). These PMDs use
// libibverbs, so only faultline-switch has them.
constexpr std::array<std::string_view, 3> kSharingDrivers{"mlx4_core", "mlx5_core", "mana"};
constexpr std::string_view kVfio = "vfio-pci";
constexpr std::string_view kUioHyperV = "uio_hv_generic";

/// Returns the last part of a link's target; empty if there is no link.
std::string target_name(const fs::path& link) {
  std::error_code error;
  return fs::read_symlink(link, error).filename().string();
}

fs::path place_of(std::string_view address, const PciFolders& folders) {
  return (is_vmbus_address(address) ? folders.vmbus : folders.devices) / address;
}

/// Returns why a process cannot use a device that exists on VMBus.
std::optional<std::string> why_not_on_vmbus(std::string_view address, std::string_view driver,
                                            const DmaUse& use) {
  if (driver != kUioHyperV)
    return fmt::format("{} is bound to {}; bind it to {} (driverctl -b vmbus set-override {} {})", address,
                       driver.empty() ? "no driver" : driver, kUioHyperV, address, kUioHyperV);
  if (std::ranges::find(use.module_drivers, driver) != use.module_drivers.end()) return std::nullopt;
  return fmt::format(
      "{} is on VMBus, whose PMD only faultline-switch has; start faultline-switch --config with huge pages, "
      "or use a port of kind af_packet or af_xdp",
      address);
}

fs::path group_of(std::string_view address, const PciFolders& folders) {
  return folders.groups / target_name(place_of(address, folders) / "iommu_group");
}

bool has(std::span<const std::string_view> drivers, std::string_view driver) {
  return std::ranges::find(drivers, driver) != drivers.end();
}

}  // namespace

std::string kernel_driver_of(std::string_view address, const PciFolders& folders) {
  return target_name(place_of(address, folders) / "driver");
}

bool is_bound_to_user_space(std::string_view address, const PciFolders& folders) {
  return has(kUserSpaceDrivers, kernel_driver_of(address, folders));
}

std::optional<std::string> why_not_usable(std::string_view address, const DmaUse& use,
                                          const PciFolders& folders) {
  const fs::path device = place_of(address, folders);
  const bool is_on_vmbus = is_vmbus_address(address);
  std::error_code error;
  if (!fs::exists(device, error))
    return fmt::format("there is no {} device {}", is_on_vmbus ? "VMBus" : "PCI", address);
  const std::string driver = kernel_driver_of(address, folders);
  if (is_on_vmbus) return why_not_on_vmbus(address, driver, use);
  const bool is_shared = has(kSharingDrivers, driver);
  if (is_shared && std::ranges::find(use.module_drivers, driver) == use.module_drivers.end())
    return fmt::format(
        "{} is bound to {}, whose PMD only faultline-switch has; start faultline-switch --uplink pci:{}, or "
        "use a port of kind af_packet or af_xdp",
        address, driver, address);
  if (!is_shared && !has(kUserSpaceDrivers, driver))
    return fmt::format("{} is bound to {}; bind it to {} (dpdk-devbind.py -b {} {})", address,
                       driver.empty() ? "no driver" : driver, kVfio, kVfio, address);
  if (!is_shared && driver != kVfio) return std::nullopt;
  const fs::path group = group_of(address, folders);
  if (!is_shared && access(group.c_str(), R_OK | W_OK) != 0)
    return fmt::format("{}, the VFIO group of {}, cannot be opened: {}; give it to the user (chown)",
                       group.string(), address, std::strerror(errno));
  if (!may_lock(use.locked_bytes)) return locked_memory_advice("DMA needs", use.locked_bytes);
  if (const auto busy = busy_group(address, folders))
    return fmt::format("another process has {}, the VFIO group of {}: end that one (fuser -v {})",
                       busy->string(), address, busy->string());
  return std::nullopt;
}

std::optional<fs::path> busy_group(std::string_view address, const PciFolders& folders) {
  if (kernel_driver_of(address, folders) != kVfio) return std::nullopt;
  fs::path group = group_of(address, folders);
  const UniqueFd opened(open(group.c_str(), O_RDWR | O_CLOEXEC));
  if (opened || errno != EBUSY) return std::nullopt;
  return group;
}

}  // namespace faultline::glue
