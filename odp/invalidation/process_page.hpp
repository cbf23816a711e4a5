// SPDX-License-Identifier: BSD-3-Clause
// State that the program's own calls read first, in memory that a child process sees as zeros (madvise(2),
// MADV_WIPEONFORK). The child's calls must not wait for the parent's engines, however the child was created
// (fork, _Fork, a bare clone). A child that shares the memory (vfork) shares this page too.
#pragma once

#include <atomic>

#include "odp/copy/quiescence.hpp"
#include "odp/invalidation/call_ledger.hpp"

namespace faultline::odp {

class InvalidationMonitor;

struct ProcessPage {
  std::atomic<InvalidationMonitor*> monitor;
  ReaderStripes calls;  ///< program calls that use `monitor`
  CallLedger ledger;

  /// Returns nullptr before the first make().
  [[nodiscard]] static ProcessPage* find() { return place_.load(std::memory_order_acquire); }
  /// Returns the process's page; allocates it if there is none. nullptr if memory is short.
  [[nodiscard]] static ProcessPage* make();

 private:
  static constinit std::atomic<ProcessPage*> place_;
};

}  // namespace faultline::odp
