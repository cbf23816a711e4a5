// SPDX-License-Identifier: BSD-3-Clause
// Commands of dpdk-telemetry.py: /faultline/devices and /faultline/counters,<device>.
#pragma once

namespace faultline::glue {

void register_telemetry();

}  // namespace faultline::glue
