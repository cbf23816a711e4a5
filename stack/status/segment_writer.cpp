// SPDX-License-Identifier: BSD-3-Clause
#include "stack/status/segment_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <new>
#include <vector>

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/base/clock.hpp"
#include "stack/base/process/fork_generation.hpp"
#include "stack/base/unique_fd.hpp"
#include "stack/status/segment_reader.hpp"

namespace faultline::status {
namespace {

// Segments of dead processes that remain for `faultline top --post-mortem`.
constexpr size_t kMostDead = 8;
// Rows get memory in steps of so many bytes.
constexpr size_t kStepBytes = 4 * kPageBytes;

template <size_t size>
void copy_text(std::array<char, size>& to, std::string_view from) {
  const size_t count = std::min(from.size(), size - 1);
  std::copy_n(from.begin(), count, to.begin());
  std::fill(to.begin() + count, to.end(), '\0');
}

std::string program_name() {
  std::array<char, 64> text{};
  const UniqueFd file(open("/proc/self/comm", O_RDONLY | O_CLOEXEC));
  const ssize_t length = file ? read(file.get(), text.data(), text.size()) : 0;
  std::string name(text.data(), length > 0 ? static_cast<size_t>(length) : 0);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

/// Removes the oldest segments of dead processes.
void remove_old(const std::string& folder) {
  const std::vector<std::string> paths = segment_files(folder);
  if (paths.size() <= kMostDead) return;
  struct Dead {
    uint64_t created_ns;
    std::string path;
  };
  std::vector<Dead> dead;
  for (const std::string& path : paths) {
    const auto segment = SegmentReader::open(path);
    if (segment == nullptr || !segment->is_dead()) continue;
    dead.push_back({segment->header().created_realtime_ns, path});
  }
  if (dead.size() <= kMostDead) return;
  std::ranges::sort(dead, {}, &Dead::created_ns);
  dead.resize(dead.size() - kMostDead);
  for (const Dead& one : dead) unlink(one.path.c_str());
}

template <typename Row>
void place_table(SegmentHeader& header, uint64_t& offset_bytes) {
  TableHeader& table = header.tables[static_cast<size_t>(TableOf<Row>::kId)];
  table.offset_bytes = offset_bytes;
  table.cell_bytes = sizeof(RowCell<Row>);
  table.capacity = TableOf<Row>::kCapacity;
  offset_bytes += whole_pages(size_t{table.capacity} * table.cell_bytes);
}

uint64_t realtime_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
}

void describe(const DeviceFacts& facts, SegmentHeader& header) {
  const ProcessIdentity self = identity_of(static_cast<uint32_t>(getpid()));
  header.version = kVersion;
  header.pid = self.pid;
  header.process_start_ticks = self.start_ticks;
  header.pid_namespace = self.pid_namespace;
  header.created_ns = monotonic_ns();
  header.created_realtime_ns = realtime_ns();
  copy_text(header.boot_id, boot_id());
  copy_text(header.program, program_name());
  copy_text(header.device, facts.name);
  copy_text(header.port_kind, facts.port_kind);
  std::ranges::copy(facts.mac, header.mac.begin());
  header.gid_count = static_cast<uint32_t>(std::min(facts.gids.size(), header.gids.size()));
  std::copy_n(facts.gids.begin(), header.gid_count, header.gids.begin());
  header.cores = facts.cores;
  header.max_path_mtu_bytes = facts.max_path_mtu_bytes;
  header.active_width_code = facts.active_width_code;
  header.active_speed_code = facts.active_speed_code;
  header.first_core_counter = facts.first_core_counter;
  header.core_cells = facts.core_counters;
  header.device_cells = static_cast<uint32_t>(facts.counters.size()) - facts.core_counters;
  header.cells_offset_bytes = whole_pages(sizeof(SegmentHeader));
}

}  // namespace

std::unique_ptr<SegmentWriter> SegmentWriter::create(const DeviceFacts& facts, std::string& error) {
  const std::string folder = segment_directory(error);
  if (folder.empty()) return nullptr;
  remove_old(folder);

  // The layout is computed in private memory first: the file's size depends on it.
  const auto plan = std::make_unique<SegmentHeader>();
  describe(facts, *plan);
  const size_t cells_bytes =
      whole_pages(sizeof(uint64_t) * (size_t{plan->core_cells} * plan->cores + plan->device_cells));
  uint64_t end_bytes = plan->cells_offset_bytes + cells_bytes;
  const uint64_t counted_bytes = end_bytes;
  place_table<CounterRow>(*plan, end_bytes);
  place_table<QpRow>(*plan, end_bytes);
  place_table<MrRow>(*plan, end_bytes);
  place_table<CqRow>(*plan, end_bytes);
  place_table<PdRow>(*plan, end_bytes);
  place_table<SrqRow>(*plan, end_bytes);
  place_table<CmRow>(*plan, end_bytes);
  place_table<FailureRecord>(*plan, end_bytes);

  std::string path = fmt::format("{}/{}.{}", folder, facts.name, getpid());
  // A file of that name is of this process before it called exec(), of a dead process, or of a process in
  // another PID namespace, which keeps its own mapping.
  unlink(path.c_str());
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const auto refuse = [&](const char* call) {
    error = fmt::format("faultline: {}: {}: {}; the device's state is not published", path, call,
                        std::strerror(errno));
    if (file) unlink(path.c_str());
    return nullptr;
  };
  if (!file) return refuse("open");
  // The bare system calls: the library's own hooks on these calls are for the program's memory.
  if (syscall(SYS_ftruncate, file.get(), static_cast<off_t>(end_bytes)) != 0) return refuse("ftruncate");
  // Without memory behind it, a store into the mapping of a full file system raises SIGBUS.
  if (syscall(SYS_fallocate, file.get(), 0, off_t{0}, static_cast<off_t>(counted_bytes)) != 0)
    return refuse("fallocate");
  const long mapped =
      syscall(SYS_mmap, nullptr, end_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), off_t{0});
  if (mapped == -1) return refuse("mmap");
  auto* const base = reinterpret_cast<uint8_t*>(mapped);
  madvise(base, end_bytes, MADV_DONTDUMP);

  auto* const header = new (base) SegmentHeader;
  describe(facts, *header);
  for (size_t i = 0; i < kTables; ++i) {
    header->tables[i].offset_bytes = plan->tables[i].offset_bytes;
    header->tables[i].cell_bytes = plan->tables[i].cell_bytes;
    header->tables[i].capacity = plan->tables[i].capacity;
  }
  std::unique_ptr<SegmentWriter> writer(new SegmentWriter(std::move(path), base, end_bytes));
  for (const CounterRow& row : facts.counters) static_cast<void>(writer->add(row));
  header->state.store(static_cast<uint32_t>(WriterState::running), std::memory_order_relaxed);
  header->magic.store(kMagic, std::memory_order_release);
  return writer;
}

SegmentWriter::SegmentWriter(std::string path, uint8_t* base, size_t bytes)
    : path_(std::move(path)), base_(base), bytes_(bytes), generation_(fork_generation()) {}

SegmentWriter::~SegmentWriter() {
  remove_file();
  syscall(SYS_munmap, base_, bytes_);
}

void SegmentWriter::remove_file() {
  if (is_of_parent_process() || is_removed_.exchange(true)) return;
  header().state.store(static_cast<uint32_t>(WriterState::ended), std::memory_order_relaxed);
  unlink(path_.c_str());
}

bool SegmentWriter::is_of_parent_process() const {
  return fork_generation() != generation_;
}

bool SegmentWriter::allocate(uint64_t offset_bytes, uint64_t length_bytes) const {
  const UniqueFd file(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  return file && syscall(SYS_fallocate, file.get(), 0, static_cast<off_t>(offset_bytes),
                         static_cast<off_t>(length_bytes)) == 0;
}

RowIndex SegmentWriter::take_index(TableId id) {
  TableHeader& table = header().tables[static_cast<size_t>(id)];
  Indices& indices = indices_[static_cast<size_t>(id)];
  if (!indices.free.empty()) {
    const RowIndex index = indices.free.back();
    indices.free.pop_back();
    return index;
  }
  if (indices.next == table.capacity) return kNoRow;
  if (indices.next == indices.allocated) {
    const auto step_rows = static_cast<RowIndex>(std::max<size_t>(kStepBytes / table.cell_bytes, 1));
    const RowIndex rows = std::min(step_rows, table.capacity - indices.next);
    if (!allocate(table.offset_bytes + uint64_t{indices.next} * table.cell_bytes,
                  uint64_t{rows} * table.cell_bytes))
      return kNoRow;
    indices.allocated = indices.next + rows;
  }
  const RowIndex index = indices.next++;
  table.end.store(indices.next, std::memory_order_release);
  return index;
}

void SegmentWriter::return_index(TableId id, RowIndex index) {
  try {
    indices_[static_cast<size_t>(id)].free.push_back(index);
  } catch (const std::bad_alloc&) {
    // The row is not used again.
  }
}

void SegmentWriter::write_core_counters(uint32_t core, std::span<const uint64_t> values) {
  std::atomic<uint64_t>* const to = cells() + size_t{core} * header().core_cells;
  const size_t count = std::min<size_t>(values.size(), header().core_cells);
  for (size_t i = 0; i < count; ++i) to[i].store(values[i], std::memory_order_relaxed);
}

void SegmentWriter::write_device_counters(std::span<const uint64_t> values) {
  const SegmentHeader& fixed = header();
  std::atomic<uint64_t>* to = cells() + size_t{fixed.cores} * fixed.core_cells;
  const size_t count = std::min<size_t>(values.size(), size_t{fixed.core_cells} + fixed.device_cells);
  for (size_t i = 0; i < count; ++i) {
    if (i >= fixed.first_core_counter && i < fixed.first_core_counter + fixed.core_cells) continue;
    to->store(values[i], std::memory_order_relaxed);
    ++to;
  }
}

}  // namespace faultline::status
