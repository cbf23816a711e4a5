// SPDX-License-Identifier: BSD-3-Clause
// Devices without a port: "mem0" and "mem1" are joined by queues in memory, each with the real transport core
// and the real memory domain, and progress is inline. The functions that verbs expects below it are defined
// here.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "stack/transport/core/core.hpp"

namespace faultline::verbs::test {

/// What a test can break. All are off at the start.
struct Faults {
  std::atomic<bool> bad_configuration{false};
  std::atomic<bool> open_fails{false};
  std::atomic<bool> link_down{false};
  std::atomic<bool> neighbours_silent{false};
  std::atomic<bool> refuse_regions{false};  ///< register_region gives ENOMEM
  std::atomic<bool> log_reasons{false};     ///< devices want reasons: take_reasons()
  std::atomic<int> cores{1};                ///< of devices that start from now on
};
Faults& faults();

/// Multicast groups that ports have joined, each as often as it was.
int multicast_joins();
/// What a port or device tells of itself.
void raise_device_event(const std::string& device, transport::AsyncEvent event);

/// The lines that were logged since the last call.
std::vector<std::string> take_reasons();

/// Devices that are running now.
int running_devices();
/// Times that drive() was called on any device.
uint64_t drives();
/// Times that rest() was called on any device.
uint64_t rests();

}  // namespace faultline::verbs::test
