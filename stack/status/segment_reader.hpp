// SPDX-License-Identifier: BSD-3-Clause
// Reads the status segments of this user's processes. A segment is untrusted: its writer may have died at any
// point, or be of another version.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stack/status/segment.hpp"
#include "stack/status/segment_writer.hpp"

namespace faultline::status {

class SegmentReader {
 public:
  /// Returns nullptr if the file is no segment of this version and user.
  [[nodiscard]] static std::unique_ptr<SegmentReader> open(const std::string& path);
  ~SegmentReader();
  SegmentReader(const SegmentReader&) = delete;
  SegmentReader& operator=(const SegmentReader&) = delete;

  [[nodiscard]] const SegmentHeader& header() const { return *reinterpret_cast<const SegmentHeader*>(base_); }
  [[nodiscard]] std::string device() const { return text(header().device); }
  [[nodiscard]] std::string program() const { return text(header().program); }
  [[nodiscard]] std::string port_kind() const { return text(header().port_kind); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint32_t pid() const { return header().pid; }
  /// True if the writer's process no longer exists. False for one in another PID namespace, which cannot be
  /// asked.
  [[nodiscard]] bool is_dead() const;
  /// True if the writer removed the segment meanwhile: its device is closed.
  [[nodiscard]] bool is_closed() const {
    return header().state.load(std::memory_order_relaxed) == static_cast<uint32_t>(WriterState::ended);
  }
  [[nodiscard]] DeviceRow device_row() const { return header().device_row.read().value_or(DeviceRow{}); }

  /// Returns the used rows with their indices, which stay the same as long as the object lives.
  template <typename Row>
  [[nodiscard]] std::vector<std::pair<RowIndex, Row>> rows() const {
    std::vector<std::pair<RowIndex, Row>> found;
    const TableHeader& table = header().tables[static_cast<size_t>(TableOf<Row>::kId)];
    const auto* const cells = reinterpret_cast<const RowCell<Row>*>(base_ + table.offset_bytes);
    const RowIndex end = std::min(table.end.load(std::memory_order_acquire), table.capacity);
    for (RowIndex index = 0; index < end; ++index) {
      if (!cells[index].is_used()) continue;
      if (const auto row = cells[index].read()) found.emplace_back(index, *row);
    }
    return found;
  }

  struct Counter {
    CounterRow text;
    uint64_t value = 0;  ///< the sum of all cores
  };
  [[nodiscard]] std::vector<Counter> counters() const;
  /// Returns the value of a counter of one core, or of the device if `core` is the number of cores. `index`
  /// counts the cells of that core or of the device.
  [[nodiscard]] uint64_t cell(uint32_t core, uint32_t index) const;

  template <size_t size>
  [[nodiscard]] static std::string text(const std::array<char, size>& bytes) {
    return {bytes.data(), std::find(bytes.begin(), bytes.end(), '\0')};
  }

 private:
  SegmentReader(std::string path, const uint8_t* base, size_t bytes)
      : path_(std::move(path)), base_(base), bytes_(bytes) {}
  [[nodiscard]] bool is_valid() const;

  const std::string path_;
  const uint8_t* const base_;
  const size_t bytes_;
};

/// Returns the paths of the files in a folder of segments, sorted; empty if it cannot be read.
[[nodiscard]] std::vector<std::string> segment_files(const std::string& folder);
/// Opens all segments of this user, sorted by device and PID. Empty if there are none.
[[nodiscard]] std::vector<std::unique_ptr<SegmentReader>> open_segments();

}  // namespace faultline::status
