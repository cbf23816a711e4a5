// SPDX-License-Identifier: BSD-3-Clause
// What the program's own calls look at first, in memory that a child process has as zeros
// (madvise(2), MADV_WIPEONFORK): the child's calls must not wait for engines that are the parent's, however
// the child was made (fork, _Fork, a bare clone). A child that shares the memory (vfork) shares this too.
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

  /// nullptr before the first make().
  [[nodiscard]] static ProcessPage* find() { return place_.load(std::memory_order_acquire); }
  /// The process's page, made where there is none. nullptr where there is no memory for it.
  [[nodiscard]] static ProcessPage* make();

 private:
  static constinit std::atomic<ProcessPage*> place_;
};

}  // namespace faultline::odp
