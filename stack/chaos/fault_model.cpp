// SPDX-License-Identifier: BSD-3-Clause
#include "stack/chaos/fault_model.hpp"

namespace faultline::chaos {

void FaultModel::advance(uint64_t now_ns) {
  now_ns_ = now_ns;
  std::array<odp::Resolution, 32> batch;
  size_t taken = 0;
  do {
    taken = memory_.take_resolutions(batch);
    for (size_t i = 0; i < taken; ++i) {
      odp::Resolution answer = batch[i];
      if (random_.happens(config_.failure)) answer.outcome = odp::Outcome::violation;
      at(first_ + held_++) = {answer, now_ns + config_.delay_ns};
    }
  } while (taken == batch.size());
}

bool FaultModel::request_fault(const odp::FaultRequest& request) {
  if (asked_ == kHeld || !memory_.request_fault(request)) return false;
  ++asked_;
  return true;
}

size_t FaultModel::take_resolutions(std::span<odp::Resolution> out) {
  size_t taken = 0;
  while (taken < out.size() && held_ != 0 && at(first_).due_ns <= now_ns_) {
    out[taken++] = at(first_++).resolution;
    --held_;
    --asked_;
  }
  return taken;
}

}  // namespace faultline::chaos
