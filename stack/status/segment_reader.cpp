// SPDX-License-Identifier: BSD-3-Clause
#include "stack/status/segment_reader.hpp"

#include <algorithm>
#include <tuple>

#include <dirent.h>
#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/base/unique_fd.hpp"

namespace faultline::status {
namespace {

template <typename Row>
bool holds_table(const SegmentHeader& header, size_t bytes) {
  const TableHeader& table = header.tables[static_cast<size_t>(TableOf<Row>::kId)];
  const uint64_t table_bytes = uint64_t{table.capacity} * sizeof(RowCell<Row>);
  return table.cell_bytes == sizeof(RowCell<Row>) && table.offset_bytes % kPageBytes == 0 &&
         table.offset_bytes <= bytes && table_bytes <= bytes - table.offset_bytes;
}

}  // namespace

std::unique_ptr<SegmentReader> SegmentReader::open(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid())
    return nullptr;
  const auto bytes = static_cast<size_t>(status.st_size);
  if (bytes < sizeof(SegmentHeader)) return nullptr;
  const long mapped = syscall(SYS_mmap, nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), off_t{0});
  if (mapped == -1) return nullptr;
  std::unique_ptr<SegmentReader> reader(
      new SegmentReader(path, reinterpret_cast<const uint8_t*>(mapped), bytes));
  return reader->is_valid() ? std::move(reader) : nullptr;
}

SegmentReader::~SegmentReader() {
  syscall(SYS_munmap, base_, bytes_);
}

bool SegmentReader::is_valid() const {
  const SegmentHeader& fixed = header();
  if (fixed.magic.load(std::memory_order_acquire) != kMagic || fixed.version != kVersion) return false;
  const uint64_t cells = uint64_t{fixed.cores} * fixed.core_cells + fixed.device_cells;
  if (fixed.cells_offset_bytes % sizeof(uint64_t) != 0 || fixed.cells_offset_bytes > bytes_ ||
      cells > (bytes_ - fixed.cells_offset_bytes) / sizeof(uint64_t) || fixed.gid_count > fixed.gids.size())
    return false;
  return holds_table<QpRow>(fixed, bytes_) && holds_table<MrRow>(fixed, bytes_) &&
         holds_table<CqRow>(fixed, bytes_) && holds_table<PdRow>(fixed, bytes_) &&
         holds_table<SrqRow>(fixed, bytes_) && holds_table<CmRow>(fixed, bytes_) &&
         holds_table<CounterRow>(fixed, bytes_) && holds_table<FailureRecord>(fixed, bytes_);
}

bool SegmentReader::is_dead() const {
  const SegmentHeader& fixed = header();
  if (text(fixed.boot_id) != boot_id()) return true;
  const ProcessIdentity now = identity_of(fixed.pid);
  if (now.pid_namespace != fixed.pid_namespace) return false;
  return now.start_ticks != fixed.process_start_ticks;
}

uint64_t SegmentReader::cell(uint32_t core, uint32_t index) const {
  const SegmentHeader& fixed = header();
  const auto* const cells = reinterpret_cast<const std::atomic<uint64_t>*>(base_ + fixed.cells_offset_bytes);
  return cells[size_t{core} * fixed.core_cells + index].load(std::memory_order_relaxed);
}

std::vector<SegmentReader::Counter> SegmentReader::counters() const {
  const SegmentHeader& fixed = header();
  std::vector<Counter> counters;
  uint32_t device_cell = 0;
  for (const auto& [index, row] : rows<CounterRow>()) {
    Counter counter{row, 0};
    if (index >= fixed.first_core_counter && index - fixed.first_core_counter < fixed.core_cells) {
      for (uint32_t core = 0; core < fixed.cores; ++core)
        counter.value += cell(core, index - fixed.first_core_counter);
    } else if (device_cell < fixed.device_cells) {
      counter.value = cell(fixed.cores, device_cell++);
    }
    counters.push_back(counter);
  }
  return counters;
}

std::vector<std::string> segment_files(const std::string& folder) {
  std::vector<std::string> paths;
  DIR* const directory = opendir(folder.c_str());
  if (directory == nullptr) return paths;
  while (const dirent* const entry = readdir(directory))
    if (entry->d_name[0] != '.') paths.push_back(fmt::format("{}/{}", folder, entry->d_name));
  closedir(directory);
  std::ranges::sort(paths);
  return paths;
}

std::vector<std::unique_ptr<SegmentReader>> open_segments() {
  std::vector<std::unique_ptr<SegmentReader>> segments;
  for (const std::string& folder : segment_directories())
    for (const std::string& path : segment_files(folder))
      if (auto segment = SegmentReader::open(path)) segments.push_back(std::move(segment));
  std::ranges::sort(segments, {},
                    [](const auto& segment) { return std::tuple(segment->device(), segment->pid()); });
  return segments;
}

}  // namespace faultline::status
