// SPDX-License-Identifier: BSD-3-Clause
// A rate limit in bytes, by a token bucket: a frame takes its bytes. It may take more than there is, and the
// next one then waits. Time is an argument. stack/base/token_bucket.hpp counts in whole nanoseconds, which a
// short frame at a high rate would be rounded to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "stack/base/time.hpp"

namespace faultline::switching {

/// Limits of the frames to the uplink, with Ethernet's overhead. 0: none.
struct Rates {
  uint32_t program_mbps = 0;
  uint32_t uplink_mbps = 0;  ///< all programs and the kernel
};

class RateLimit {
 public:
  /// The largest burst lasts this long at the rate: the switch may sleep for 1 ms.
  static constexpr TimeNs kBurstNs = 4'000'000;
  /// Two of the longest frames.
  static constexpr uint64_t kLeastBurstBytes = 10'000;

  RateLimit() = default;
  /// 0: no limit. The bucket is full.
  explicit RateLimit(uint32_t mbps)
      : bytes_per_s_(kBytesPerMbit * mbps),
        most_(kNsPerS *
              static_cast<int64_t>(std::max(bytes_per_s_ * kBurstNs / uint64_t{kNsPerS}, kLeastBurstBytes))),
        tokens_(most_) {}

  /// Whether a frame may be sent at `now`, which does not decrease.
  [[nodiscard]] bool has_tokens(TimeNs now) {
    if (bytes_per_s_ == 0) return true;
    const TimeNs elapsed = now - std::exchange(filled_at_, now);
    const auto missing = static_cast<uint64_t>(most_ - tokens_);
    tokens_ =
        elapsed > missing / bytes_per_s_ ? most_ : tokens_ + static_cast<int64_t>(elapsed * bytes_per_s_);
    return tokens_ > 0;
  }
  void take(uint64_t bytes) {
    if (bytes_per_s_ != 0) tokens_ -= kNsPerS * static_cast<int64_t>(bytes);
  }

 private:
  static constexpr int64_t kNsPerS = 1'000'000'000;
  static constexpr uint64_t kBytesPerMbit = 125'000;

  uint64_t bytes_per_s_ = 0;
  int64_t most_ = 0;  ///< in bytes * ns/s, as tokens_: nothing is lost to rounding
  int64_t tokens_ = 0;
  TimeNs filled_at_ = 0;
};

}  // namespace faultline::switching
