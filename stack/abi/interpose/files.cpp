// SPDX-License-Identifier: BSD-3-Clause
// Interposes on the calls that remove bytes from a mapped file or shared memory (fallocate(2), truncate(2)),
// in libfaultline.so. Neither userfaultfd nor the mapping reports them.
//
// Engines copy through the program's mapping and so see the file's current content; the copy's own fault
// covers what is beyond its end. But a pin holds a page's memory after the page has left the file. So after
// the call the pins and marks of those pages are dropped, and the next access asks the pager.
//
// Calls that grow a file, and calls without a domain, cost a load and at most one fstat(2). The others walk
// the process's file mappings, so registering memory costs nothing.
#include <algorithm>
#include <cstdint>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/invalidation/invalidation_monitor.hpp"
#include "odp/invalidation/program_call.hpp"
#include "odp/mappings/own_mappings.hpp"
#include "odp/regions/page_map.hpp"
#include "stack/abi/interpose/next_call.hpp"
#include "stack/abi/interpose/program_range.hpp"
#include "stack/base/process/errno_kept.hpp"

namespace {

using faultline::ErrnoKept;
using faultline::abi::has_domains;
using faultline::abi::page_end;
using faultline::abi::page_start;
using faultline::odp::MappingFacts;
using faultline::odp::OwnMappings;

constexpr uint64_t kNoEnd = ~uint64_t{0};

/// Drops pins and marks of the file's pages that lie wholly in [first, end).
void drop_pages(uint64_t inode, uint64_t first, uint64_t end) {
  first = page_end(first);
  end = end == kNoEnd ? kNoEnd : page_start(end);
  if (first >= end) return;
  const OwnMappings mappings;
  // Compares only the inode number: with layered file systems and subvolumes, the list of mappings shows
  // another device than fstat(2). Another file with the same number loses pins, which are taken again.
  mappings.for_each_file_from(0, [=](const MappingFacts& mapping) {
    if (mapping.inode != inode) return true;
    const uint64_t from = std::max(first, mapping.offset_bytes);
    const uint64_t to = std::min(end, mapping.offset_bytes + (mapping.end - mapping.start));
    if (from < to) {
      const uint64_t start = mapping.start + (from - mapping.offset_bytes);
      faultline::odp::drop_marks(start, start + (to - from));
    }
    return true;
  });
}

/// takes_bytes: bytes are removed; moves_bytes: those after them are moved too (fallocate(2)).
constexpr bool takes_bytes(int mode) {
  return (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_COLLAPSE_RANGE |
                  FALLOC_FL_INSERT_RANGE)) != 0;
}
constexpr bool moves_bytes(int mode) {
  return (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)) != 0;
}

int allocate(int file, int mode, int64_t offset, int64_t length) {
  const auto result = static_cast<int>(syscall(SYS_fallocate, file, mode, offset, length));
  if (result != 0 || !takes_bytes(mode) || !has_domains()) return result;
  const ErrnoKept kept;
  struct stat facts {};
  if (syscall(SYS_fstat, file, &facts) != 0) return result;
  const auto first = static_cast<uint64_t>(offset);
  drop_pages(facts.st_ino, first, moves_bytes(mode) ? kNoEnd : first + static_cast<uint64_t>(length));
  return result;
}

/// `look` is a system call that fills a stat, or fails as `call` will.
template <typename Look, typename Call>
int set_size(int64_t size, Look look, Call call) {
  if (!has_domains()) return static_cast<int>(call());
  struct stat before {};
  bool shrinks = false;
  {
    const ErrnoKept kept;
    shrinks = look(&before) == 0 && size < before.st_size;
  }
  const auto result = static_cast<int>(call());
  if (result != 0 || !shrinks) return result;
  const ErrnoKept kept;
  drop_pages(before.st_ino, static_cast<uint64_t>(size), kNoEnd);
  return result;
}

int truncate_file(int file, int64_t size) {
  return set_size(
      size, [=](struct stat* facts) { return syscall(SYS_fstat, file, facts); },
      [=] { return syscall(SYS_ftruncate, file, size); });
}
int truncate_path(const char* path, int64_t size) {
  return set_size(
      size, [=](struct stat* facts) { return syscall(SYS_newfstatat, AT_FDCWD, path, facts, 0); },
      [=] { return syscall(SYS_truncate, path, size); });
}

}  // namespace

extern "C" {

int faultline_fallocate(int, int, int64_t, int64_t) noexcept FAULTLINE_STANDS_BEFORE("fallocate");
int faultline_fallocate(int file, int mode, int64_t offset, int64_t length) noexcept {
  return allocate(file, mode, offset, length);
}
int faultline_fallocate64(int, int, int64_t, int64_t) noexcept FAULTLINE_STANDS_BEFORE("fallocate64");
int faultline_fallocate64(int file, int mode, int64_t offset, int64_t length) noexcept {
  return allocate(file, mode, offset, length);
}
int faultline_ftruncate(int, int64_t) noexcept FAULTLINE_STANDS_BEFORE("ftruncate");
int faultline_ftruncate(int file, int64_t size) noexcept {
  return truncate_file(file, size);
}
int faultline_ftruncate64(int, int64_t) noexcept FAULTLINE_STANDS_BEFORE("ftruncate64");
int faultline_ftruncate64(int file, int64_t size) noexcept {
  return truncate_file(file, size);
}
int faultline_truncate(const char*, int64_t) noexcept FAULTLINE_STANDS_BEFORE("truncate");
int faultline_truncate(const char* path, int64_t size) noexcept {
  return truncate_path(path, size);
}
int faultline_truncate64(const char*, int64_t) noexcept FAULTLINE_STANDS_BEFORE("truncate64");
int faultline_truncate64(const char* path, int64_t size) noexcept {
  return truncate_path(path, size);
}

}  // extern "C"
