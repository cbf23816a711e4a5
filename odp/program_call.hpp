// SPDX-License-Identifier: BSD-3-Clause
// What the program's own munmap, madvise and the like are wrapped in where the library sees them before the
// kernel does. userfaultfd tells of an munmap when the mapping has gone already, and of mprotect,
// MADV_PAGEOUT and shmdt never: between the two another thread's mapping could be written into. Here the
// engines stop first, the pages are marked, and only then the call is made.
#pragma once

#include <cstdint>

#include "odp/invalidation_monitor.hpp"

namespace faultline::odp {

class ProgramCall {
 public:
  /// Stops the engines of each domain that has a region in [start, end), marks its pages (drop, kill or
  /// make_copy_on_write) and lets go of their pins. Costs a load where there is no domain. A page is killed
  /// when the call is over: until then it is doomed, and nobody is told that it is gone.
  ProgramCall(uint64_t start, uint64_t end, PageEvent change);
  ProgramCall(const ProgramCall&) = delete;
  ProgramCall& operator=(const ProgramCall&) = delete;
  /// The engines go on.
  ~ProgramCall();

  /// The mapping is there all the same: what was killed lives again.
  void undo_kill() { last_ = PageEvent::revive; }

 private:
  const InvalidationMonitor::CallGuard guard_;
  const uint64_t start_;
  const uint64_t end_;
  const bool kills_;
  PageEvent last_ = PageEvent::bury;  ///< of what is doomed
  /// Domains come and go meanwhile, but not those that are held here.
  std::array<InvalidationSink*, InvalidationMonitor::kMaxSinks> stopped_;
  size_t stopped_count_ = 0;
};

/// Where the mapping that begins at `address` ends, for calls that do not say (shmdt). `address` where there
/// is none.
[[nodiscard]] uint64_t end_of_mapping(uint64_t address);

/// Tells the domains of forks (pthread_atfork(3)), once. Without it, and without userfaultfd's own event, a
/// page that parent and child share would be written by an engine as the parent's.
void watch_forks();
/// How many forks lie between the first process and this one: what was made in another generation is the
/// parent's, whose threads are not here.
[[nodiscard]] uint32_t fork_generation();

}  // namespace faultline::odp
