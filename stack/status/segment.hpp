// SPDX-License-Identifier: BSD-3-Clause
// The layout of a device's status segment: a file of shared memory that a process writes and that any process
// of the same user reads, also after the writer's death. The tables of rows are sparse: memory is allocated
// before a row's first use.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "stack/status/failure.hpp"
#include "stack/status/row_cell.hpp"
#include "stack/status/rows.hpp"

namespace faultline::status {

inline constexpr uint64_t kMagic = 0x31'73'75'74'61'74'73'66;  ///< "fstatus1" as bytes
inline constexpr uint32_t kVersion = 2;

/// The tables of a segment. Each has rows of one type.
enum class TableId : uint8_t { qps, mrs, cqs, pds, srqs, cm_ids, counters, failures, count_ };
inline constexpr size_t kTables = static_cast<size_t>(TableId::count_);

/// Where a table lies. Constant but for `end`.
struct TableHeader {
  uint64_t offset_bytes = 0;
  uint32_t cell_bytes = 0;
  uint32_t capacity = 0;
  /// No row at or after it was ever used.
  std::atomic<uint32_t> end{0};
  uint32_t padding = 0;
};

/// How the writer ended, as far as it could say.
enum class WriterState : uint32_t { starting, running, ended };

struct SegmentHeader {
  std::atomic<uint64_t> magic{0};  ///< written last
  uint32_t version = 0;
  uint32_t pid = 0;
  uint64_t process_start_ticks = 0;  ///< field 22 of /proc/PID/stat: distinguishes processes with equal PIDs
  uint64_t pid_namespace = 0;        ///< inode of /proc/self/ns/pid
  uint64_t created_ns = 0;
  uint64_t created_realtime_ns = 0;
  std::array<char, 40> boot_id{};  ///< /proc/sys/kernel/random/boot_id: the clock restarts with the kernel
  std::array<char, 16> program{};  ///< comm
  std::array<char, 64> device{};
  std::array<char, 32> port_kind{};
  std::array<uint8_t, 8> mac{};
  std::array<std::array<uint8_t, 16>, 8> gids{};
  uint32_t gid_count = 0;
  uint32_t cores = 0;
  uint32_t max_path_mtu_bytes = 0;
  uint8_t active_width_code = 0;  ///< ibv_port_attr::active_width and active_speed
  uint8_t active_speed_code = 0;
  uint16_t padding_2 = 0;
  std::atomic<uint32_t> state{0};  ///< WriterState

  /// Counter cells: for each core those of the transport, then those of the device. Each has its writer, and
  /// is a 64-bit number by itself.
  uint64_t cells_offset_bytes = 0;
  uint32_t core_cells = 0;
  uint32_t device_cells = 0;
  /// The counter with index `first_core_counter` is the first cell of the cores; those before and after the
  /// `core_cells` that follow are cells of the device, in order.
  uint32_t first_core_counter = 0;
  uint32_t padding = 0;

  std::array<TableHeader, kTables> tables{};
  RowCell<DeviceRow> device_row;
};

inline constexpr size_t kPageBytes = 4096;

[[nodiscard]] constexpr size_t whole_pages(size_t bytes) {
  return (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
}

/// Returns the directory for this process's segments, and makes it: in $XDG_RUNTIME_DIR, or without that in
/// /dev/shm, which no disk backs, or else in the runtime directory. Returns "" with one line in `error` if
/// there is none.
[[nodiscard]] std::string segment_directory(std::string& error);
/// Returns the directories in which processes of this user may have segments, whatever their environment is.
/// Each is this user's alone.
[[nodiscard]] std::vector<std::string> segment_directories();

/// Identifies a process. `start_ticks` is 0 if it does not run, or if /proc cannot be read.
struct ProcessIdentity {
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
  uint64_t pid_namespace = 0;
};
[[nodiscard]] ProcessIdentity identity_of(uint32_t pid);
/// Returns the kernel's boot ID, or "".
[[nodiscard]] std::string boot_id();

}  // namespace faultline::status
