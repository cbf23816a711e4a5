// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/congestion/swift.hpp"

#include <algorithm>

namespace faultline::transport {

void Swift::on_round_trip(uint64_t rtt_ns, TimeNs now) {
  const auto rtt = static_cast<double>(rtt_ns);
  smoothed_rtt_ns_ = smoothed_rtt_ns_ == 0 ? rtt : smoothed_rtt_ns_ * 7 / 8 + rtt / 8;
  const auto target = static_cast<double>(config_.target_delay_ns);
  if (rtt < target) {
    // Share of the round trip that this sample covers.
    const double share = std::min(static_cast<double>(now - last_sample_ns_) / rtt, 1.0);
    window_packets_ =
        std::min(window_packets_ + config_.additive_packets * share, config_.max_window_packets);
  } else {
    decrease(std::max(1 - config_.beta * (rtt - target) / rtt, 1 - config_.max_decrease), now);
  }
  last_sample_ns_ = now;
}

/// Leaves at least one packet per round trip: retransmissions give no samples that would raise the rate.
void Swift::on_loss(TimeNs now) {
  if (window_packets_ > 1) decrease(std::max(1 - config_.max_decrease, 1 / window_packets_), now);
}

/// At most once per round trip: signals within one round trip concern the same queue.
void Swift::decrease(double factor, TimeNs now) {
  if (last_decrease_ns_ != 0 && static_cast<double>(now - last_decrease_ns_) < smoothed_rtt_ns_) return;
  last_decrease_ns_ = now;
  window_packets_ = std::max(window_packets_ * factor, config_.min_window_packets);
}

uint64_t Swift::rate(TimeNs /*now*/) {
  if (smoothed_rtt_ns_ == 0) return kUnlimited;  // no round trip measured yet
  return std::max(static_cast<uint64_t>(window_packets_ * mtu_bytes_ * 1e9 / smoothed_rtt_ns_),
                  config_.min_bytes_per_s);
}

}  // namespace faultline::transport
