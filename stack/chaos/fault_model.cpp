// SPDX-License-Identifier: BSD-3-Clause
#include "stack/chaos/fault_model.hpp"

#include <algorithm>
#include <tuple>

namespace faultline::chaos {

bool FaultModel::is_later(const Held& a, const Held& b) {
  return std::tie(a.due_ns, a.order) > std::tie(b.due_ns, b.order);
}

void FaultModel::advance(uint64_t now_ns) {
  now_ns_ = now_ns;
  while (!held_.empty() && held_.front().due_ns <= now_ns) {
    const Held& due = held_.front();
    if (due.fails) {
      if (failed_waiters_.size() == kHeld) return;
      failed_waiters_.push_back(due.request.waiter);
    } else if (!memory_.request_fault(due.request)) {
      return;  // the fault queue is full: retry on the next turn
    }
    std::pop_heap(held_.begin(), held_.end(), is_later);
    held_.pop_back();
  }
}

FaultFate FaultModel::fate_of(const odp::FaultRequest& request) {
  if (config_.decide) return config_.decide(request);
  return {config_.delay_ns, random_.happens(config_.failure)};
}

bool FaultModel::request_fault(const odp::FaultRequest& request) {
  if (held_.size() == kHeld) return false;
  const FaultFate fate = fate_of(request);
  held_.push_back({request, now_ns_ + fate.delay_ns, next_order_++, fate.fails});
  std::push_heap(held_.begin(), held_.end(), is_later);
  return true;
}

size_t FaultModel::take_resolutions(std::span<odp::Resolution> out) {
  size_t taken = 0;
  for (; taken < out.size() && !failed_waiters_.empty(); failed_waiters_.pop_back())
    out[taken++] = {failed_waiters_.back(), odp::Outcome::violation};
  return taken + memory_.take_resolutions(out.subspan(taken));
}

}  // namespace faultline::chaos
