// SPDX-License-Identifier: BSD-3-Clause
#include "stack/record/recording.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stack/base/clock.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::record {
namespace {

constexpr uint64_t kHeaderBytes = 4096;
constexpr uint64_t kConnectionBytes = kConnectionRows * sizeof(ConnectionRow);
constexpr uint64_t kControlBytes = kControlRows * sizeof(ControlRow);
/// What stands before the rings of records.
constexpr uint64_t kFrontBytes = kHeaderBytes + kConnectionBytes + kControlBytes;
constexpr unsigned kMostNames = 100;

uint64_t realtime_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
}

/// FILE, FILE.PID, FILE.PID.2, ...: the first that does not exist.
UniqueFd create_file(const std::string& wanted, std::string& name) {
  for (unsigned attempt = 0; attempt < kMostNames; ++attempt) {
    name = attempt == 0   ? wanted
           : attempt == 1 ? fmt::format("{}.{}", wanted, getpid())
                          : fmt::format("{}.{}.{}", wanted, getpid(), attempt);
    UniqueFd fd(open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd.get() >= 0 || errno != EEXIST) return fd;
  }
  return {};
}

void copy_name(std::array<char, 64>& to, const std::string& name) {
  std::copy_n(name.begin(), std::min(name.size(), to.size() - 1), to.begin());
}

}  // namespace

std::unique_ptr<Recording> Recording::create(const Wanted& wanted, std::string& error) {
  if (wanted.cores >= kMostRings) {
    error = fmt::format("{} cores are more than a recording has, {}", wanted.cores, kMostRings - 1);
    return nullptr;
  }
  const uint64_t core_records = std::bit_floor(wanted.ring_bytes / sizeof(Record));
  std::unique_ptr<Recording> recording(new Recording);
  recording->bytes_ = kFrontBytes + (core_records * wanted.cores + kOtherRecords) * sizeof(Record);
  const UniqueFd fd = create_file(wanted.file, recording->file_);
  const auto fail = [&](int code) {
    error = fmt::format("cannot write {}: {}", recording->file_, std::strerror(code));
    if (fd.get() >= 0) unlink(recording->file_.c_str());
    return nullptr;
  };
  if (fd.get() < 0) return fail(errno);
  if (const int code = posix_fallocate(fd.get(), 0, static_cast<off_t>(recording->bytes_)); code != 0)
    return fail(code);
  void* const memory = mmap(nullptr, recording->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return fail(errno);
  recording->memory_ = memory;
  // Pages of a file are mapped without the right to write until the first write to each.
  madvise(memory, recording->bytes_, MADV_POPULATE_WRITE);
  // A child of a fork has no engine that writes, and its device a file of its own.
  madvise(memory, recording->bytes_, MADV_DONTFORK);

  auto* const bytes = static_cast<uint8_t*>(memory);
  auto* const header = new (bytes) FileHeader;
  header->version = kVersion;
  header->connection_rows = kConnectionRows;
  header->connections_offset_bytes = kHeaderBytes;
  header->control_rows = kControlRows;
  header->controls_offset_bytes = kHeaderBytes + kConnectionBytes;
  if (!wanted.is_virtual) {
    header->pid = static_cast<uint32_t>(getpid());
    header->monotonic_ns = monotonic_ns();
    header->realtime_ns = realtime_ns();
  }
  copy_name(header->device, wanted.device);
  copy_name(header->program, program_invocation_short_name);
  const ConnectionWriter connections(reinterpret_cast<ConnectionRow*>(bytes + kHeaderBytes),
                                     &header->connections_written);
  recording->controls_ = std::make_unique<ControlWriter>(
      reinterpret_cast<ControlRow*>(bytes + header->controls_offset_bytes), &header->controls_written);
  uint64_t offset_bytes = kFrontBytes;
  for (uint32_t i = 0; i <= wanted.cores; ++i) {
    RingHeader& ring = header->ring[i];
    ring.offset_bytes = offset_bytes;
    ring.records = i < wanted.cores ? core_records : kOtherRecords;
    auto* const records = reinterpret_cast<Record*>(bytes + offset_bytes);
    if (i < wanted.cores) {
      recording->rings_.emplace_back(records, ring, connections);
    } else {
      recording->other_records_ = records;
      recording->other_ring_ = &ring;
    }
    offset_bytes += ring.records * sizeof(Record);
  }
  header->rings = wanted.cores + 1;
  header->magic = kMagic;
  return recording;
}

Recording::~Recording() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

void Recording::add_other(Record record) {
  record.time_ns = monotonic_ns();
  const uint64_t number = std::atomic_ref(other_ring_->written).fetch_add(1, std::memory_order_relaxed);
  other_records_[number % kOtherRecords] = record;
}

}  // namespace faultline::record
