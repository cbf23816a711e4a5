// SPDX-License-Identifier: BSD-3-Clause
// Computes when a rate-limited QP may send its next packet.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stack/transport/congestion/rate_control.hpp"

namespace faultline::transport {

class Pacing {
 public:
  /// Bound on catching up: a QP may make up for at most this much time that it could not use between two
  /// turns.
  static constexpr uint64_t kCreditNs = 20'000;

  [[nodiscard]] TimeNs next_ns() const { return next_ns_; }
  void on_sent(uint32_t bytes, uint64_t rate_bytes_per_s, TimeNs now) {
    const TimeNs floor = now > kCreditNs ? now - kCreditNs : 0;
    next_ns_ = std::max(next_ns_, floor) + uint64_t{bytes} * 1'000'000'000 / rate_bytes_per_s;
  }

 private:
  TimeNs next_ns_ = 0;
};

}  // namespace faultline::transport
