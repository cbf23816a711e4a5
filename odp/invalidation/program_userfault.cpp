// SPDX-License-Identifier: BSD-3-Clause
#include "odp/invalidation/program_userfault.hpp"

#include <cerrno>

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "odp/copy/tolerant_copy.hpp"
#include "odp/invalidation/program_call.hpp"
#include "odp/regions/page_map.hpp"
#include "stack/base/process/signals_blocked.hpp"

namespace faultline::odp {
namespace {

// Newer than the headers of Debian 12 (Linux 6.8, include/uapi/linux/userfaultfd.h).
struct UffdioMove {
  uint64_t dst, src, len, mode;
  int64_t move;
};
constexpr unsigned long kUffdioMove = _IOWR(UFFDIO, 0x05, UffdioMove);

/// False if the argument cannot be read: then the kernel cannot read it either (EFAULT).
template <typename Argument>
bool read_argument(Argument& to, const void* from) {
  return tolerant_copy(&to, from, sizeof to) == sizeof to;
}

/// True for a range that the kernel accepts (ioctl_userfaultfd(2): page-aligned, not empty).
bool is_range(uint64_t start, uint64_t length) {
  return start % kPageBytes == 0 && length % kPageBytes == 0 && length != 0 && start + length > start;
}

void note_paged(InvalidationMonitor& monitor, uint64_t start, uint64_t end) {
  const SignalsBlocked blocked;
  monitor.for_each_touched(start, end,
                           [=](InvalidationSink& sink) { sink.note_paged_by_program(start, end); });
}

/// EINVAL: a hole, or a moved range; EBUSY: the program's own userfaultfd.
void watch_again(InvalidationMonitor& monitor, uint64_t start, uint64_t end) {
  const int error = monitor.book()->restore(start, end);
  if (error == 0 || error == EINVAL || error == EBUSY) return;
  const SignalsBlocked blocked;
  monitor.for_each_touched(start, end, [=](InvalidationSink& sink) { sink.note_unwatched(start, end); });
}

int register_range(InvalidationMonitor& monitor, int fd, void* argument, IoctlCall call) {
  uffdio_register wanted{};
  if (!read_argument(wanted, argument) || !is_range(wanted.range.start, wanted.range.len))
    return call(fd, UFFDIO_REGISTER, argument);
  const uint64_t start = wanted.range.start;
  const uint64_t end = start + wanted.range.len;
  // Precedes the release of the pins: no new pin is made from here on. A fault that was classified as quick
  // would wait for the program with the pager's mutex held.
  note_paged(monitor, start, end);
  monitor.for_each_touched(start, end, [](InvalidationSink& sink) { sink.wait_for_services(); });
  const ProgramCall guard(start, end, PageEvent::drop);
  const auto make_call = [&] {
    if (call(fd, UFFDIO_REGISTER, argument) != 0) return errno;
    // Repeated, since a pager thread may meanwhile have found that the program had nothing there.
    note_paged(monitor, start, end);
    return 0;
  };
  WatchBook* const book = monitor.book();
  const int error = book == nullptr ? make_call() : book->make_room_for(start, end, make_call);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

int unregister_range(InvalidationMonitor& monitor, int fd, void* argument, IoctlCall call) {
  uffdio_range range{};
  const bool is_known = read_argument(range, argument) && is_range(range.start, range.len);
  const int result = call(fd, UFFDIO_UNREGISTER, argument);
  const int error = errno;
  if (result == 0 && is_known && monitor.book() != nullptr)
    watch_again(monitor, range.start, range.start + range.len);
  errno = error;
  return result;
}

int write_protect(int fd, void* argument, IoctlCall call) {
  uffdio_writeprotect wanted{};
  if (!read_argument(wanted, argument) || !is_range(wanted.range.start, wanted.range.len) ||
      (wanted.mode & UFFDIO_WRITEPROTECT_MODE_WP) == 0)
    return call(fd, UFFDIO_WRITEPROTECT, argument);
  // Not make_copy_on_write: a pager thread could restore the right to write before the kernel removes it.
  const ProgramCall guard(wanted.range.start, wanted.range.start + wanted.range.len, PageEvent::drop);
  return call(fd, UFFDIO_WRITEPROTECT, argument);
}

int move_pages(int fd, void* argument, IoctlCall call) {
  UffdioMove wanted{};
  if (!read_argument(wanted, argument) || !is_range(wanted.src, wanted.len))
    return call(fd, kUffdioMove, argument);
  const ProgramCall guard(wanted.src, wanted.src + wanted.len, PageEvent::drop);
  return call(fd, kUffdioMove, argument);
}

}  // namespace

int program_ioctl(int fd, unsigned long request, void* argument, IoctlCall call) {
  if (request != UFFDIO_REGISTER && request != UFFDIO_UNREGISTER && request != UFFDIO_WRITEPROTECT &&
      request != kUffdioMove)
    return call(fd, request, argument);
  const InvalidationMonitor::CallGuard guard;
  if (guard.monitor == nullptr) return call(fd, request, argument);
  switch (request) {
    case UFFDIO_REGISTER:
      return register_range(*guard.monitor, fd, argument, call);
    case UFFDIO_UNREGISTER:
      return unregister_range(*guard.monitor, fd, argument, call);
    case UFFDIO_WRITEPROTECT:
      return write_protect(fd, argument, call);
    default:
      return move_pages(fd, argument, call);
  }
}

WatchPause::WatchPause(uint64_t start, uint64_t end) : start_(start), end_(end) {
  if (guard_.monitor == nullptr || start >= end) return;
  book_ = guard_.monitor->book();
  if (book_ != nullptr) book_->lift(start, end);
}

WatchPause::~WatchPause() {
  if (book_ == nullptr) return;
  const int error = errno;
  watch_again(*guard_.monitor, start_, end_);
  if (new_start_ < new_end_) watch_again(*guard_.monitor, new_start_, new_end_);
  errno = error;
}

void WatchPause::note_new_place(uint64_t start, uint64_t end) {
  new_start_ = start;
  new_end_ = end;
}

}  // namespace faultline::odp
