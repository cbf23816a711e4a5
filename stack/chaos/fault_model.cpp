// SPDX-License-Identifier: BSD-3-Clause
#include "stack/chaos/fault_model.hpp"

namespace faultline::chaos {

void FaultModel::advance(uint64_t now_ns) {
  now_ns_ = now_ns;
  for (; held_ != 0 && at(first_).due_ns <= now_ns; ++first_, --held_) {
    const Held& due = at(first_);
    if (due.fails) {
      if (failures_ == kHeld) return;
      failed_waiters_[failures_++] = due.request.waiter;
    } else if (!memory_.request_fault(due.request)) {
      return;  // the fault queue is full: retry on the next turn
    }
  }
}

bool FaultModel::request_fault(const odp::FaultRequest& request) {
  if (held_ == kHeld) return false;
  at(first_ + held_++) = {request, now_ns_ + config_.delay_ns, random_.happens(config_.failure)};
  return true;
}

size_t FaultModel::take_resolutions(std::span<odp::Resolution> out) {
  size_t taken = 0;
  while (taken < out.size() && failures_ != 0)
    out[taken++] = {failed_waiters_[--failures_], odp::Outcome::violation};
  return taken + memory_.take_resolutions(out.subspan(taken));
}

}  // namespace faultline::chaos
