// SPDX-License-Identifier: BSD-3-Clause
// How long a queue was for how long: mean, percentiles and maximum, weighted by time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "apps/sim/fabric/event_queue.hpp"

namespace faultline::fabric {

class QueueLengths {
 public:
  /// Notes that the queue had `bytes` from the last call until now.
  void note(uint64_t bytes, TimePs now_ps) {
    const TimePs lasted_ps = now_ps - since_ps_;
    since_ps_ = now_ps;
    time_ps_[bucket_of(bytes)] += lasted_ps;
    area_ += static_cast<double>(bytes) * static_cast<double>(lasted_ps);
    most_bytes_ = std::max(most_bytes_, bytes);
  }
  void note_peak(uint64_t bytes) { most_bytes_ = std::max(most_bytes_, bytes); }

  [[nodiscard]] uint64_t most_bytes() const { return most_bytes_; }
  /// Until the time of the last note.
  [[nodiscard]] double mean_bytes() const {
    return since_ps_ == 0 ? 0 : area_ / static_cast<double>(since_ps_);
  }
  /// Returns the length that the queue did not exceed for `ratio` of the time, rounded up by an eighth at
  /// most.
  [[nodiscard]] uint64_t percentile_bytes(double ratio) const {
    TimePs seen_ps = 0;
    for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
      seen_ps += time_ps_[bucket];
      if (static_cast<double>(seen_ps) >= ratio * static_cast<double>(since_ps_))
        return std::min(end_of(bucket), most_bytes_);
    }
    return most_bytes_;
  }

 private:
  // Buckets as of a floating-point number with three bits of mantissa.
  static constexpr uint32_t kMantissaBits = 3;
  static constexpr uint32_t kPerOctave = 1U << kMantissaBits;
  static constexpr uint32_t kOctaves = 40 - kMantissaBits;  // up to 2^40 bytes
  static constexpr uint32_t kBuckets = kPerOctave * (kOctaves + 1);

  static constexpr uint32_t bucket_of(uint64_t bytes) {
    if (bytes < kPerOctave) return static_cast<uint32_t>(bytes);
    const auto shift = static_cast<uint32_t>(std::bit_width(bytes)) - 1 - kMantissaBits;
    return std::min(shift * kPerOctave + static_cast<uint32_t>(bytes >> shift), kBuckets - 1);
  }
  /// Returns the largest length of a bucket.
  static constexpr uint64_t end_of(uint32_t bucket) {
    if (bucket < 2 * kPerOctave) return bucket;
    const uint32_t shift = bucket / kPerOctave - 1;
    const uint64_t first = uint64_t{bucket % kPerOctave + kPerOctave} << shift;
    return first + (uint64_t{1} << shift) - 1;
  }

  TimePs since_ps_ = 0;
  double area_ = 0;
  uint64_t most_bytes_ = 0;
  std::array<TimePs, kBuckets> time_ps_{};
};

}  // namespace faultline::fabric
