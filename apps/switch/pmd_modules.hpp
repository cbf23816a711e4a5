// SPDX-License-Identifier: BSD-3-Clause
// PMDs in modules, which the switch loads if its NIC needs them. They depend on rdma-core's libibverbs, whose
// names a program on Faultline has from Faultline's own library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/switch/options.hpp"

namespace faultline::switching {

/// Returns the module of the PMD for NICs of a kernel driver; empty: the PMD, if any, is in the switch.
[[nodiscard]] std::string_view module_for(std::string_view kernel_driver);

/// Loads the module that the uplink's NIC needs, and those of --pmd. Adds to the options what EAL and the
/// port must know of them. Precedes EAL's start. Throws glue::ConfigError.
void load_pmd_modules(Options& options);

}  // namespace faultline::switching
