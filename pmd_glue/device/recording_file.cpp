// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/device/recording_file.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <spdlog/fmt/fmt.h>

namespace faultline::glue {

bool DeviceRecording::open(const std::string& device, uint32_t cores,
                           std::unique_ptr<DeviceRecording>& recording, std::string& error) {
  const char* const file = secure_getenv("FAULTLINE_RECORD");
  if (file == nullptr || *file == '\0') return true;
  record::Recording::Wanted wanted{.file = file, .cores = cores, .device = device};
  constexpr unsigned kMegabyteShift = 20;
  if (const char* const size = secure_getenv("FAULTLINE_RECORD_SIZE"); size != nullptr) {
    const std::string_view text(size);
    uint64_t megabytes = 0;
    const auto [end, code] = std::from_chars(text.begin(), text.end(), megabytes);
    if (code != std::errc() || end != text.end() || megabytes < record::kLeastRingBytes >> kMegabyteShift ||
        megabytes > record::kMostRingBytes >> kMegabyteShift) {
      error = fmt::format(
          "faultline: FAULTLINE_RECORD_SIZE: \"{}\" is not a number of megabytes from {} to {}", text,
          record::kLeastRingBytes >> kMegabyteShift, record::kMostRingBytes >> kMegabyteShift);
      return false;
    }
    wanted.ring_bytes = megabytes << kMegabyteShift;
  }
  std::string reason;
  if (auto file_of_it = record::Recording::create(wanted, reason)) {
    recording = std::make_unique<DeviceRecording>(std::move(file_of_it));
    return true;
  }
  error = fmt::format("faultline: {}: FAULTLINE_RECORD: {}", device, reason);
  return false;
}

void DeviceRecording::on_pages_lost(uint64_t pages) {
  record::Record record;
  record.kind = record::Kind::invalidation;
  record.argument = static_cast<uint32_t>(std::min<uint64_t>(pages, UINT32_MAX));
  recording_->add_other(record);
}

}  // namespace faultline::glue
