// SPDX-License-Identifier: BSD-3-Clause
// The C library's names by which a program removes memory, in libfaultline.so: each notifies the engines
// before the kernel acts. A call that affects no region costs a few loads. Calls inside the C library (free,
// realloc, pthread_create) bypass these names; userfaultfd reports them.
//
// Each then calls the next definition of its name (next_definition.hpp).
#include <cstdarg>
#include <cstdint>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/invalidation/program_call.hpp"
#include "odp/invalidation/program_userfault.hpp"
#include "odp/regions/address_space.hpp"
#include "odp/regions/page_map.hpp"
#include "stack/abi/interpose/next_definition.hpp"
#include "stack/abi/interpose/program_range.hpp"
#include "stack/base/process/errno_kept.hpp"

namespace {

using faultline::abi::number_of;
using faultline::abi::page_end;
using faultline::odp::AddressSpaceCall;
using faultline::odp::PageEvent;
using faultline::odp::ProgramCall;
using faultline::odp::WatchPause;

constexpr int kMadvCollapse = 25;  // Linux 6.1

/// Whether the advice invalidates pages that an engine knows.
bool takes_away(int advice) {
  switch (advice) {
    case MADV_DONTNEED:
    case MADV_FREE:
    case MADV_REMOVE:
    case MADV_PAGEOUT:
    case MADV_COLD:
    case kMadvCollapse:  // a pinned page cannot be moved into a huge one
#ifdef MADV_DONTNEED_LOCKED
    case MADV_DONTNEED_LOCKED:
#endif
      return true;
    default:
      return false;
  }
}

/// Whether every byte is preserved by such an advice.
bool keeps_contents(int advice) {
  return advice == MADV_PAGEOUT || advice == MADV_COLD || advice == kMadvCollapse;
}

}  // namespace

namespace {

void* map(void* address, size_t length, int protection, int flags, int file, int64_t offset) {
  const auto call = [=](int with) {
    const AddressSpaceCall in_progress;
    return faultline::odp::next::mmap(address, length, protection, with, file, offset);
  };
  if ((flags & MAP_FIXED) == 0 || (flags & MAP_FIXED_NOREPLACE) == MAP_FIXED_NOREPLACE) return call(flags);
  const uint64_t start = number_of(address);
  const uint64_t end = page_end(start, length);
  if (faultline::odp::may_meet_regions(start, end)) {
    // A mapping into a hole removes nothing. A region that was registered over the hole covers it from now
    // on.
    const faultline::ErrnoKept kept;
    if (void* const filled = call(flags | MAP_FIXED_NOREPLACE); filled != MAP_FAILED) return filled;
  }
  ProgramCall guard(start, end, PageEvent::kill);
  void* const result = call(flags);
  if (result == MAP_FAILED) guard.fail();
  return result;
}

}  // namespace

// Declared with separate labels: with 64-bit file offsets the header maps the two to one name.
extern "C" __attribute__((visibility("default"))) void* faultline_mmap(void*, size_t, int, int, int,
                                                                       int64_t) noexcept asm("mmap");
void* faultline_mmap(void* address, size_t length, int protection, int flags, int file,
                     int64_t offset) noexcept {
  return map(address, length, protection, flags, file, offset);
}
extern "C" __attribute__((visibility("default"))) void* faultline_mmap64(void*, size_t, int, int, int,
                                                                         int64_t) noexcept asm("mmap64");
void* faultline_mmap64(void* address, size_t length, int protection, int flags, int file,
                       int64_t offset) noexcept {
  return map(address, length, protection, flags, file, offset);
}

FAULTLINE_CALL int munmap(void* address, size_t length) noexcept {
  ProgramCall guard(number_of(address), page_end(number_of(address), length), PageEvent::kill);
  const AddressSpaceCall in_progress;
  const int result = faultline::odp::next::munmap(address, length);
  if (result != 0) guard.fail();
  return result;
}

FAULTLINE_CALL void* mremap(void* address, size_t old_length, size_t new_length, int flags, ...) noexcept {
  void* wanted = nullptr;
  if ((flags & MREMAP_FIXED) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start has just done it
    wanted = va_arg(arguments, void*);
    va_end(arguments);
  }
  const auto call = [=] {
    return faultline::odp::next::mremap(address, old_length, new_length, flags, wanted);
  };
  const uint64_t start = number_of(address);
  const uint64_t end = page_end(start, old_length);
  const bool stays_too = (flags & MREMAP_DONTUNMAP) != 0;  // emptied, but not unmapped
  const bool may_move = (flags & MREMAP_FIXED) != 0 || stays_too ||
                        ((flags & MREMAP_MAYMOVE) != 0 && page_end(start, new_length) > end);
  // The range that is vacated: all of it if it moves, the tail if it shrinks.
  ProgramCall old_place(may_move ? start : page_end(start, new_length), end, PageEvent::kill);
  const bool overwrites = (flags & MREMAP_FIXED) != 0;
  ProgramCall new_place(number_of(wanted), overwrites ? page_end(number_of(wanted), new_length) : 0,
                        PageEvent::kill);
  // The kernel treats the range as one mapping only if userfaultfd watches no part of it.
  WatchPause pause(start, end);
  const AddressSpaceCall in_progress;
  void* const result = call();
  if (result == MAP_FAILED) {
    old_place.fail();
    new_place.fail();
    return result;
  }
  pause.note_new_place(number_of(result), page_end(number_of(result), new_length));
  if (stays_too || (may_move && result == address)) old_place.undo_kill();
  return result;
}

FAULTLINE_CALL int madvise(void* address, size_t length, int advice) noexcept {
  const auto call = [=] {
    const AddressSpaceCall in_progress;
    return faultline::odp::next::madvise(address, length, advice);
  };
  if (!takes_away(advice)) return call();
  const uint64_t start = number_of(address);
  const uint64_t end = page_end(start, length);
  if (keeps_contents(advice)) {
    faultline::odp::drop_marks(start, end);
    return call();
  }
  const ProgramCall guard(start, end, PageEvent::drop);
  return call();
}

FAULTLINE_CALL int mprotect(void* address, size_t length, int protection) noexcept {
  const auto call = [=] {
    const AddressSpaceCall in_progress;
    return static_cast<int>(syscall(SYS_mprotect, address, length, protection));
  };
  if ((protection & PROT_WRITE) != 0) return call();
  const uint64_t start = number_of(address);
  const uint64_t end = page_end(start, length);
  // If a page becomes resident before the kernel changes the protection, the engine's copy faults.
  if ((protection & PROT_READ) != 0)
    static_cast<void>(ProgramCall(start, end, PageEvent::make_copy_on_write));
  else
    faultline::odp::drop_marks(start, end);
  return call();
}
