// SPDX-License-Identifier: BSD-3-Clause
// Registered memory under the program's own userfaultfd(2) and mremap(2). Our watch must not be in their way:
// a range can be on one userfaultfd only (UFFDIO_REGISTER, EBUSY), and a watch on part of a mapping makes
// several mappings of it, which mremap(2) refuses to move or grow together (EFAULT).
#pragma once

#include <cstdint>

#include "odp/invalidation/invalidation_monitor.hpp"

namespace faultline::odp {

using IoctlCall = int (*)(int fd, unsigned long request, void* argument) noexcept;

/// The program's ioctl(2), made by `call`. On a userfaultfd (the requests are its alone, ioctl-number.rst,
/// 0xAA):
/// - UFFDIO_REGISTER gets the range also where we watch it; from then on a pager thread, never an engine,
///   waits for pages that the program has not provided, and none of them is pinned;
/// - UFFDIO_UNREGISTER gives the range back to our watch;
/// - UFFDIO_WRITEPROTECT makes a write of an engine a miss before the kernel would let the engine wait;
/// - UFFDIO_MOVE takes the source's pages from the engines.
int program_ioctl(int fd, unsigned long request, void* argument, IoctlCall call);

/// Around a call that needs the mapping in one piece: lifts the watch on [start, end), and watches again what
/// regions have there afterwards. Calls inside [start, end) that no hook sees are not noticed meanwhile.
class WatchPause {
 public:
  WatchPause(uint64_t start, uint64_t end);
  WatchPause(const WatchPause&) = delete;
  WatchPause& operator=(const WatchPause&) = delete;
  ~WatchPause();
  /// Memory has moved to this range: what regions have there is watched too.
  void note_new_place(uint64_t start, uint64_t end);

 private:
  const InvalidationMonitor::CallGuard guard_;
  WatchBook* book_ = nullptr;
  const uint64_t start_;
  const uint64_t end_;
  uint64_t new_start_ = 0;
  uint64_t new_end_ = 0;
};

}  // namespace faultline::odp
