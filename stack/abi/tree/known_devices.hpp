// SPDX-License-Identifier: BSD-3-Clause
// The devices that this process may open, and the running processes of this user that have opened one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <infiniband/verbs.h>

#include "stack/abi/tree/device_files.hpp"
#include "stack/status/segment_reader.hpp"

namespace faultline::abi {

/// The devices of ibv_get_device_list(3). Starts none.
class KnownDevices {
 public:
  /// `with_counters`: whether the facts have the devices' counters.
  explicit KnownDevices(bool with_counters);

  [[nodiscard]] std::span<const DeviceFacts> facts() const { return facts_; }

 private:
  int count_ = 0;
  std::unique_ptr<ibv_device*[], void (*)(ibv_device**)> list_;
  std::vector<DeviceFacts> facts_;
};

/// Returns the status segments of this user's running processes with the device, by PID. A process of another
/// PID namespace is not among them: its PIDs mean nothing here.
[[nodiscard]] std::vector<std::unique_ptr<status::SegmentReader>> programs_with(const std::string& device);

/// Returns the sums of the counters of these processes, the largest value for a maximum, in the order of
/// verbs::counter_texts(). This process's own values are those of now, the others' as they were published
/// last. Empty if no process has the device open.
[[nodiscard]] std::vector<uint64_t> counters_of_programs(const std::string& device);

/// Returns the values with their names; zeros if there are none.
[[nodiscard]] std::vector<NamedCounter> named_counters(std::span<const uint64_t> values);

}  // namespace faultline::abi
