// SPDX-License-Identifier: BSD-3-Clause
// Whether and where a device is recorded: FAULTLINE_RECORD, a file, and FAULTLINE_RECORD_SIZE, megabytes for
// each core.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "odp/regions/memory_domain.hpp"
#include "stack/record/recording.hpp"

namespace faultline::glue {

/// A device's recording; hears of the invalidations of its memory.
class DeviceRecording final : public odp::PageLossSink {
 public:
  explicit DeviceRecording(std::unique_ptr<record::Recording> recording) : recording_(std::move(recording)) {}

  /// Creates the recording if the environment asks for one. Returns false, with one line in `error`, if that
  /// is impossible.
  [[nodiscard]] static bool open(const std::string& device, uint32_t cores,
                                 std::unique_ptr<DeviceRecording>& recording, std::string& error);

  [[nodiscard]] record::RingWriter& ring_of_core(uint32_t core) { return recording_->ring_of_core(core); }
  [[nodiscard]] record::ControlWriter& controls() { return recording_->controls(); }
  void on_pages_lost(uint64_t pages) override;

 private:
  std::unique_ptr<record::Recording> recording_;
};

}  // namespace faultline::glue
