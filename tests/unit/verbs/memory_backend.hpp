// SPDX-License-Identifier: BSD-3-Clause
// Devices without a port: "mem0" and "mem1" are joined by queues in memory. Each has the real transport core
// and memory domain, with inline progress. This library defines the functions that verbs requires below it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "stack/record/record.hpp"
#include "stack/transport/core/core.hpp"
#include "stack/transport/qp/events.hpp"

namespace faultline::verbs::test {

/// Faults that a test can inject. All are off at the start.
struct Faults {
  std::atomic<bool> bad_configuration{false};
  std::atomic<bool> open_fails{false};
  std::atomic<bool> link_down{false};
  std::atomic<bool> neighbours_silent{false};
  std::atomic<int> missed_drives{0};  ///< so many calls of drive() find another thread in the engine's turn
  std::atomic<bool> refuse_regions{false};  ///< register_region returns ENOMEM
  std::atomic<bool> log_reasons{false};     ///< devices log reasons: take_reasons()
  std::atomic<bool> record_calls{false};    ///< devices record control calls: take_recorded_calls()
  std::atomic<int> cores{1};                ///< for devices that start from now on
};
Faults& faults();

/// Returns the multicast groups joined by ports, counting repeated joins.
int multicast_joins();
/// Raises an event as a port or device does.
void raise_device_event(const std::string& device, transport::AsyncEvent event);

/// Returns the lines logged since the last call.
std::vector<std::string> take_reasons();

/// Returns the control calls recorded since the last call, with `record_calls`.
std::vector<record::ControlRow> take_recorded_calls();

/// Returns the failures of QPs since the last call.
std::vector<transport::QpFailure> take_failures();

/// Returns the number of running devices.
int running_devices();
/// Returns the number of drive() calls on any device.
uint64_t drives();
/// Returns the number of run_turns() calls on any device.
uint64_t turns_of_all_cores();
/// Returns the number of rest() calls on any device.
uint64_t rests();

}  // namespace faultline::verbs::test
