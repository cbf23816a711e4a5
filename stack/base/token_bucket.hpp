// SPDX-License-Identifier: BSD-3-Clause
// Limits the rate of work done for unknown peers: a sustained rate, and a burst after a pause.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stack/base/time.hpp"

namespace faultline {

class TokenBucket {
 public:
  TokenBucket(uint32_t per_second, uint32_t at_once)
      : period_ns_(1'000'000'000 / per_second), most_ahead_ns_(period_ns_ * at_once) {}

  /// Takes a token. Returns false if the rate is exceeded.
  [[nodiscard]] bool take(TimeNs now) {
    // The time at which all tokens would be back: the virtual scheduling algorithm of ITU-T I.371.
    const TimeNs full = std::max(full_at_, now);
    if (full + period_ns_ > now + most_ahead_ns_) return false;
    full_at_ = full + period_ns_;
    return true;
  }

 private:
  const uint64_t period_ns_;
  const uint64_t most_ahead_ns_;
  TimeNs full_at_ = 0;
};

}  // namespace faultline
