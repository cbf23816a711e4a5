// SPDX-License-Identifier: BSD-3-Clause
// Adds the connection manager's counters to those of a device. A service ends with the program's last rdma_cm
// identifier; its counts are kept.
#pragma once

#include <cstdint>
#include <string>

#include "stack/cm/counters.hpp"

namespace faultline::cm {

class Service;

/// The counts of one service.
struct ServiceCounters {
  ManagerCounters manager;
  uint64_t overruns = 0;  ///< datagrams dropped because the service's thread fell behind
};

/// Registers a running service, whose counts are then included. Any thread.
void begin_counting(Service& service, const std::string& device);
/// Adds the final counts of a service that ends.
void end_counting(Service& service, const std::string& device);

}  // namespace faultline::cm
