// SPDX-License-Identifier: BSD-3-Clause
// Makes a device's status segment, and publishes what no core owns: the counters of memory, port and
// connection manager, the regions' counters and the link's state. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "stack/base/time.hpp"
#include "stack/status/segment_writer.hpp"
#include "stack/verbs/objects/backend.hpp"

namespace faultline::glue {

class DevicePublisher {
 public:
  /// Returns nullptr with one line in `error` if there is no place for the segment.
  [[nodiscard]] static std::unique_ptr<DevicePublisher> create(verbs::DeviceBackend& device,
                                                               const std::string& port_kind,
                                                               std::string& error);

  [[nodiscard]] status::SegmentWriter& segment() { return *segment_; }

  /// Publishes if an interval has passed since the last time.
  void publish_if_due(bool link_up, TimeNs now);

 private:
  static constexpr TimeNs kIntervalNs = 200'000'000;
  /// Regions whose counters one call reads.
  static constexpr status::RowIndex kRegions = 256;

  DevicePublisher(verbs::DeviceBackend& device, std::unique_ptr<status::SegmentWriter> segment)
      : device_(device), segment_(std::move(segment)) {}
  void publish_regions();

  verbs::DeviceBackend& device_;
  const std::unique_ptr<status::SegmentWriter> segment_;
  TimeNs next_ns_ = 0;
  status::RowIndex next_region_ = 0;
};

}  // namespace faultline::glue
