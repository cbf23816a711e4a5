// SPDX-License-Identifier: BSD-3-Clause
// Publishes the state of one device of this process in a status segment. Program threads add and remove rows;
// the owner of an object writes its row.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stack/status/segment.hpp"

namespace faultline::status {

/// Maps each row type to its table and the table's capacity.
template <typename Row>
struct TableOf;
template <>
struct TableOf<QpRow> {
  static constexpr TableId kId = TableId::qps;
  static constexpr uint32_t kCapacity = 32'768;
};
template <>
struct TableOf<MrRow> {
  static constexpr TableId kId = TableId::mrs;
  static constexpr uint32_t kCapacity = 65'536;
};
template <>
struct TableOf<CqRow> {
  static constexpr TableId kId = TableId::cqs;
  static constexpr uint32_t kCapacity = 16'384;
};
template <>
struct TableOf<PdRow> {
  static constexpr TableId kId = TableId::pds;
  static constexpr uint32_t kCapacity = 8192;
};
template <>
struct TableOf<SrqRow> {
  static constexpr TableId kId = TableId::srqs;
  static constexpr uint32_t kCapacity = 8192;
};
template <>
struct TableOf<CmRow> {
  static constexpr TableId kId = TableId::cm_ids;
  static constexpr uint32_t kCapacity = 16'384;
};
template <>
struct TableOf<FailureRecord> {
  static constexpr TableId kId = TableId::failures;
  static constexpr uint32_t kCapacity = 8192;
};
template <>
struct TableOf<CounterRow> {
  static constexpr TableId kId = TableId::counters;
  static constexpr uint32_t kCapacity = 1024;
};

/// What is constant of a device.
struct DeviceFacts {
  std::string name;
  std::string port_kind;
  std::array<uint8_t, 6> mac{};
  std::vector<std::array<uint8_t, 16>> gids;
  uint32_t cores = 1;
  uint32_t max_path_mtu_bytes = 0;
  uint8_t active_width_code = 0;
  uint8_t active_speed_code = 0;
  std::vector<CounterRow> counters;  ///< in the order of verbs::counter_texts()
  uint32_t first_core_counter = 0;   ///< index of the first counter of the transport
  uint32_t core_counters = 0;        ///< number of these
};

class SegmentWriter {
 public:
  /// Makes the segment. Returns nullptr with one line in `error` if there is no place for it.
  [[nodiscard]] static std::unique_ptr<SegmentWriter> create(const DeviceFacts& facts, std::string& error);
  /// Removes the segment: only that of a process that did not end properly remains.
  ~SegmentWriter();
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;

  /// Removes the file, from any thread, without a lock. A forked child leaves its parent's file alone.
  void remove_file();

  /// Adds a row. Returns kNoRow if the table is full, memory is short or this is a forked child. Any thread;
  /// may allocate.
  template <typename Row>
  [[nodiscard]] RowIndex add(const Row& row) {
    if (is_of_parent_process()) return kNoRow;
    const std::lock_guard guard(rows_mutex_);
    const RowIndex index = take_index(TableOf<Row>::kId);
    if (index == kNoRow) return kNoRow;
    cell<Row>(index).write(row);
    cell<Row>(index).set_used(true);
    return index;
  }
  /// Removes a row; nothing for kNoRow. Any thread.
  template <typename Row>
  void remove(RowIndex index) {
    if (index == kNoRow || is_of_parent_process()) return;
    const std::lock_guard guard(rows_mutex_);
    cell<Row>(index).set_used(false);
    return_index(TableOf<Row>::kId, index);
  }
  /// Calls change(Row&) with the row at `index` if it is used, and writes the result. Any thread, for rows
  /// without another writer.
  template <typename Row, typename Change>
  void update(RowIndex index, Change change) {
    if (index == kNoRow || is_of_parent_process()) return;
    const std::lock_guard guard(rows_mutex_);
    if (index >= end<Row>() || !cell<Row>(index).is_used()) return;
    std::optional<Row> row = cell<Row>(index).read();
    if (!row) return;
    change(*row);
    cell<Row>(index).write(*row);
  }
  /// The cell of an added row. The owner thread of the row's object writes it.
  template <typename Row>
  [[nodiscard]] RowCell<Row>& cell(RowIndex index) {
    return reinterpret_cast<RowCell<Row>*>(
        base_ + header().tables[static_cast<size_t>(TableOf<Row>::kId)].offset_bytes)[index];
  }
  /// One past the last row that was ever used.
  template <typename Row>
  [[nodiscard]] RowIndex end() const {
    return header().tables[static_cast<size_t>(TableOf<Row>::kId)].end.load(std::memory_order_acquire);
  }

  /// Publishes a core's counters, in the order of the table. The core's thread.
  void write_core_counters(uint32_t core, std::span<const uint64_t> values);
  /// Publishes the other counters: `values` are those of all, in the order of the table. One thread.
  void write_device_counters(std::span<const uint64_t> values);
  void write_device(const DeviceRow& row) { header().device_row.write(row); }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool is_of_parent_process() const;

 private:
  SegmentWriter(std::string path, uint8_t* base, size_t bytes);
  [[nodiscard]] SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(base_); }
  [[nodiscard]] const SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  [[nodiscard]] std::atomic<uint64_t>* cells() {
    return reinterpret_cast<std::atomic<uint64_t>*>(base_ + header().cells_offset_bytes);
  }
  [[nodiscard]] RowIndex take_index(TableId id);
  void return_index(TableId id, RowIndex index);
  /// Opens the file for it: a descriptor that stayed open would be one less for the program.
  [[nodiscard]] bool allocate(uint64_t offset_bytes, uint64_t length_bytes) const;

  struct Indices {
    std::vector<RowIndex> free;
    RowIndex next = 0;       ///< never used yet
    RowIndex allocated = 0;  ///< rows that have memory
  };

  const std::string path_;
  uint8_t* const base_;
  const size_t bytes_;
  const uint32_t generation_;
  std::atomic<bool> is_removed_{false};
  std::mutex rows_mutex_;                 ///< for add(), remove() and update()
  std::array<Indices, kTables> indices_;  ///< guarded by rows_mutex_
};

}  // namespace faultline::status
