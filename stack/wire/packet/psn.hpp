// SPDX-License-Identifier: BSD-3-Clause
// Packet sequence numbers: 24-bit serial arithmetic (IBA vol. 1, 9.7.2; wrap at 2^24).
#pragma once

#include <cstdint>

namespace faultline::wire {

/// A 24-bit PSN. Ordered by serial arithmetic: `a < b` means that a precedes b within half the ring (2^23).
class Psn {
 public:
  static constexpr uint32_t kMask = 0xffffffU;
  static constexpr uint32_t kHalf = 1U << 23;

  constexpr Psn() = default;
  constexpr explicit Psn(uint32_t value) : value_(value & kMask) {}

  [[nodiscard]] constexpr uint32_t value() const { return value_; }
  [[nodiscard]] constexpr Psn next() const { return Psn(value_ + 1); }
  [[nodiscard]] constexpr Psn plus(uint32_t packets) const { return Psn(value_ + packets); }
  [[nodiscard]] constexpr Psn minus(uint32_t packets) const { return Psn(value_ - packets); }

  /// Signed distance from `other` to this, in [-2^23, 2^23).
  [[nodiscard]] constexpr int32_t distance_from(Psn other) const {
    return static_cast<int32_t>((value_ - other.value_) << 8U) >> 8;
  }

  friend constexpr bool operator==(Psn a, Psn b) { return a.value_ == b.value_; }
  friend constexpr bool operator<(Psn a, Psn b) { return a.distance_from(b) < 0; }
  friend constexpr bool operator<=(Psn a, Psn b) { return a.distance_from(b) <= 0; }
  friend constexpr bool operator>(Psn a, Psn b) { return a.distance_from(b) > 0; }
  friend constexpr bool operator>=(Psn a, Psn b) { return a.distance_from(b) >= 0; }

 private:
  uint32_t value_ = 0;
};

}  // namespace faultline::wire
