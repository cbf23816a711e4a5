// SPDX-License-Identifier: BSD-3-Clause
// Registered memory under the program's own userfaultfd(2) and mremap(2). Our watch must not obstruct them:
// a range can be on one userfaultfd only (UFFDIO_REGISTER, EBUSY). A watch on part of a mapping splits it
// into several mappings, which mremap(2) refuses to move or grow together (EFAULT).
#pragma once

#include <cstdint>

#include "odp/invalidation/invalidation_monitor.hpp"

namespace faultline::odp {

using IoctlCall = int (*)(int fd, unsigned long request, void* argument) noexcept;

/// Executes the program's ioctl(2) by `call`. On a userfaultfd (no other device uses these requests,
/// ioctl-number.rst, 0xAA):
/// - UFFDIO_REGISTER gets the range even if we watch it; from then on a pager thread, never an engine, waits
///   for pages that the program has not provided, and none of them is pinned;
/// - UFFDIO_UNREGISTER returns the range to our watch;
/// - UFFDIO_WRITEPROTECT turns an engine's write into a miss before the kernel would block the engine;
/// - UFFDIO_MOVE removes the source's pages from the engines.
int program_ioctl(int fd, unsigned long request, void* argument, IoctlCall call);

/// Wraps a call that needs the mapping in one piece: lifts the watch on [start, end), and afterwards watches
/// again what regions have there. Meanwhile calls inside [start, end) that no hook sees are not noticed.
class WatchPause {
 public:
  WatchPause(uint64_t start, uint64_t end);
  WatchPause(const WatchPause&) = delete;
  WatchPause& operator=(const WatchPause&) = delete;
  ~WatchPause();
  /// Memory has moved to this range: the regions there are watched too.
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
