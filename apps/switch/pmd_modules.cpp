// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/pmd_modules.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <dlfcn.h>
#include <rte_version.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/ports/pci_device.hpp"

namespace faultline::switching {
namespace {

namespace fs = std::filesystem;

// Kernel drivers, and the modules of the PMDs that use them (DPDK's guides for mlx4, mlx5, mana and netvsc).
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kModules{
    {{"mlx4_core", "mlx4"}, {"mlx5_core", "mlx5"}, {"mana", "mana"}, {"uio_hv_generic", "netvsc"}}};

[[noreturn]] void refuse(std::string_view module, std::string_view message) {
  throw glue::ConfigError(fmt::format("faultline-switch: PMD {}: {}", module, message));
}

/// Returns the path of a module: next to this program, as in a build, or in the installation's folder.
fs::path path_of(std::string_view module) {
  const std::string file = fmt::format("faultline-pmd-{}.so", module);
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& place : {folder, folder / ".." / FAULTLINE_LIBDIR / "faultline"})
    if (access((place / file).c_str(), R_OK) == 0) return place / file;
  refuse(module, fmt::format("there is no {} next to the switch; build with a DPDK that has this PMD", file));
}

void load(std::string_view module) {
  const fs::path path = path_of(module);
  void* const loaded = dlopen(path.c_str(), RTLD_NOW);
  if (loaded == nullptr) refuse(module, dlerror());
  const auto* const version = static_cast<const int*>(dlsym(loaded, "faultline_pmd_dpdk_version"));
  if (version == nullptr || *version != RTE_VERSION)
    refuse(module, fmt::format("{} is of another build; install both from one build", path.string()));
  // A path of libraries for programs on Faultline would give the PMD Faultline's devices.
  if (dlsym(loaded, "faultline_configure") != nullptr)
    refuse(module,
           "its libibverbs is Faultline's; start the switch without LD_PRELOAD and LD_LIBRARY_PATH of "
           "faultline-run");
}

}  // namespace

std::string_view module_for(std::string_view kernel_driver) {
  const auto* const found =
      std::ranges::find(kModules, kernel_driver, &decltype(kModules)::value_type::first);
  return found == kModules.end() ? std::string_view{} : found->second;
}

void load_pmd_modules(Options& options) {
  std::vector<std::string>& wanted = options.pmds;
  if (options.uplink && glue::row_of(options.uplink->port.kind).is_on_pci) {
    const std::string driver = glue::kernel_driver_of(glue::pci_address_of(options.uplink->port.address), {});
    if (const std::string_view module = module_for(driver); !module.empty()) {
      wanted.emplace_back(module);
      options.eal.module_drivers.push_back(driver);
    }
  }
  for (const std::string& module : wanted) load(module);
  const auto is_wanted = [&](std::string_view module) {
    return std::ranges::find(wanted, module) != wanted.end();
  };
  const auto add = [&](std::string_view argument) { options.eal.extra_args.emplace_back(argument); };
  // mlx5's module has a bus that would give DPDK each sub-function of each NIC. An address without a name
  // keeps the bus from its scan.
  if (is_wanted("mlx5")) {
    add("-a");
    add("auxiliary:");
  }
  if (is_wanted("netvsc") && options.uplink &&
      glue::is_vmbus_address(glue::pci_address_of(options.uplink->port.address))) {
    if (!options.eal.huge_pages)
      refuse("netvsc", "VMBus takes physical addresses; set eal.huge_pages = true in --config");
    add("-a");
    add(options.uplink->port.address);
    add("--iova-mode=pa");
  }
}

}  // namespace faultline::switching
