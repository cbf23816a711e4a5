// SPDX-License-Identifier: BSD-3-Clause
// The connection manager's counters among those of a device. A service ends with the program's last rdma_cm
// identifier; its counts stay.
#pragma once

#include <cstdint>
#include <string>

#include "stack/cm/counters.hpp"

namespace faultline::cm {

class Service;

/// What a service has counted.
struct ServiceCounters {
  ManagerCounters manager;
  uint64_t overruns = 0;  ///< datagrams that came faster than the service's thread took them
};

/// Counts a service among the running ones. Any thread.
void begin_counting(Service& service, const std::string& device);
/// Keeps the counts of a service that ends.
void end_counting(Service& service, const std::string& device);

}  // namespace faultline::cm
