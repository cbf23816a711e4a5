// SPDX-License-Identifier: BSD-3-Clause
// Instead of pmd_glue/device/progress_thread.cpp: no thread drives the devices of this program. A test calls
// drive(), housekeep() and maintain() itself, so the order of turns is the test's.
#include "pmd_glue/device/progress_thread.hpp"

namespace faultline::glue {

ProgressThread::ProgressThread() = default;

ProgressThread& ProgressThread::instance() {
  static ProgressThread none;
  return none;
}

void ProgressThread::add(RunningDevice& /*device*/) {}
void ProgressThread::remove(RunningDevice& /*device*/) {}
void ProgressThread::abandon() {}
void ProgressThread::on_doorbell() {}

}  // namespace faultline::glue
