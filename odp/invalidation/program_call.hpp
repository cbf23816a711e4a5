// SPDX-License-Identifier: BSD-3-Clause
// The program's own munmap, madvise and similar calls, which the library sees before the kernel does
// (docs/invalidation.md describes the protocol).
// Before the call: mark the pages, and make sure that no engine still touches them by an older check. During
// the call only these pages are blocked. After the call: settle the marks by the call's result.
#pragma once

#include <cstdint>

#include "odp/invalidation/call_ledger.hpp"
#include "odp/regions/address_space.hpp"
#include "odp/regions/page_map.hpp"

namespace faultline::odp {

class ProgramCall {
 public:
  /// Marks the pages of all regions in [start, end) and releases their pins:
  /// - kill: a call that unmaps. The pages are doomed until the call ends, then dead.
  /// - drop: a call that removes the contents. Doomed until the call ends, then absent. A classic region's
  ///   pages stay.
  /// - make_copy_on_write: a call that removes the right to write. Readable at most; the pins stay.
  /// Costs a few loads if no region is near. Waits for no thread if copies can be restarted.
  /// Async-signal-safe, no cancellation point.
  ProgramCall(uint64_t start, uint64_t end, PageEvent change);
  ProgramCall(const ProgramCall&) = delete;
  ProgramCall& operator=(const ProgramCall&) = delete;
  /// Settles the marks.
  ~ProgramCall();

  /// The mapping stays, whatever the kernel's events report (MREMAP_DONTUNMAP).
  void undo_kill() { end_ = CallEnd::stays; }
  /// The call failed, perhaps half-way: queries the kernel for what is still mapped.
  void fail() { end_ = CallEnd::failed; }

 private:
  void settle_marks();

  const AddressRange range_;
  const PageEvent change_;
  CallEnd end_ = CallEnd::done;
  bool is_marked_ = false;     ///< there are doomed pages to settle
  bool is_suspended_ = false;  ///< the thread's own sessions are suspended
  CallLedger::Entry* entry_ = nullptr;
};

/// False only if no region overlaps [start, end), so that a ProgramCall there would do nothing.
/// Async-signal-safe.
[[nodiscard]] bool may_meet_regions(uint64_t start, uint64_t end);

/// Removes the marks and pins of [start, end), before a call that moves pages and keeps their contents
/// (MADV_PAGEOUT, MADV_COLLAPSE). Only the pins obstruct such a call, so no engine has to stop for it.
void drop_marks(uint64_t start, uint64_t end);

}  // namespace faultline::odp
