// SPDX-License-Identifier: BSD-3-Clause
// The VFIO group of the uplink's NIC. The kernel resets the NIC of a killed switch before it releases the
// group, and the next switch may start meanwhile.
#pragma once

#include "pmd_glue/config/config.hpp"

namespace faultline::switching {

/// Waits some seconds while another process has the group. EAL tries to open it only once, so this comes
/// before EAL starts. Other ports need no wait.
void await_vfio_group(const glue::DeviceConfig& uplink);

}  // namespace faultline::switching
