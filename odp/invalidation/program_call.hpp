// SPDX-License-Identifier: BSD-3-Clause
// The program's own munmap, madvise and the like, where the library sees them before the kernel does
// (docs/invalidation.md has the protocol). Before the call: mark the pages, and make sure that no engine
// still touches them by an older check. Then the call, while nothing but these pages stands still. After it:
// settle the marks by how the call ended.
#pragma once

#include <cstdint>

#include "odp/invalidation/call_ledger.hpp"
#include "odp/regions/address_space.hpp"
#include "odp/regions/page_map.hpp"

namespace faultline::odp {

class ProgramCall {
 public:
  /// Marks the pages of all regions in [start, end) and lets go of their pins:
  /// - kill: a call that unmaps. The pages are doomed until the call is over, then dead.
  /// - drop: a call that takes the contents away. Doomed until the call is over, then absent. A classic
  ///   region's pages stay.
  /// - make_copy_on_write: a call that takes the right to write away. Readable at most; the pins stay.
  /// Costs a few loads where no region is near. Waits for no thread where copies can be restarted.
  /// Async-signal-safe, no cancellation point.
  ProgramCall(uint64_t start, uint64_t end, PageEvent change);
  ProgramCall(const ProgramCall&) = delete;
  ProgramCall& operator=(const ProgramCall&) = delete;
  /// Settles the marks.
  ~ProgramCall();

  /// The mapping stays, whatever the kernel's events report (MREMAP_DONTUNMAP).
  void undo_kill() { end_ = CallEnd::stays; }
  /// The call failed, perhaps half-way: the kernel is asked for what is still mapped.
  void fail() { end_ = CallEnd::failed; }

 private:
  void settle_marks();

  const AddressRange range_;
  const PageEvent change_;
  CallEnd end_ = CallEnd::done;
  bool is_marked_ = false;     ///< doomed pages, to be settled
  bool is_suspended_ = false;  ///< the thread's own sessions
  CallLedger::Entry* entry_ = nullptr;
};

/// False only where no region has part of [start, end), so that a ProgramCall there would do nothing.
/// Async-signal-safe.
[[nodiscard]] bool may_meet_regions(uint64_t start, uint64_t end);

/// Takes the marks and pins of [start, end) away, before a call that moves pages and keeps their contents
/// (MADV_PAGEOUT, MADV_COLLAPSE): the pins are all that is in its way, and nobody has to stand still for it.
void drop_marks(uint64_t start, uint64_t end);

}  // namespace faultline::odp
