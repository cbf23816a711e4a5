// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/congestion/swift.hpp"

#include <algorithm>
#include <cmath>

namespace faultline::transport {

namespace {

/// Windows between which the target is scaled. The paper names them fs_min_cwnd and fs_max_cwnd.
constexpr double kLeastScaledPackets = 0.1;
constexpr double kMostScaledPackets = 100;
/// Round trips over which the round trip is smoothed.
constexpr double kSmoothedRoundTrips = 8;

}  // namespace

void Swift::on_round_trip(uint64_t rtt_ns, TimeNs now) {
  const auto rtt = static_cast<double>(rtt_ns);
  const auto gap_ns = static_cast<double>(now - last_sample_ns_);
  last_sample_ns_ = now;
  smooth(rtt, gap_ns);
  const double target = target_ns();
  if (rtt >= target) {
    if (has_decreased_within(rtt, now)) return;  // the packet was sent before the decrease
    return decrease(std::max(1 - config_.beta * (rtt - target) / rtt, 1 - config_.max_decrease), now);
  }
  // The share of a round trip that this sample covers. The smoothed round trip counts if it is longer. A flow
  // with a packet in flight at all times would else have most samples, and grow most, while the queue is
  // short; slower flows sample at even intervals. Below one packet in a round trip, each acknowledged packet
  // counts as a whole one, as in the paper.
  const double share = std::min(gap_ns / std::max(rtt, smoothed_rtt_ns_), 1.0);
  window_packets_ = std::min(window_packets_ + config_.additive_packets * share, config_.max_window_packets);
}

/// Leaves at least one packet per round trip: retransmissions give no samples that would raise the rate.
void Swift::on_loss(TimeNs now) {
  if (window_packets_ <= 1 || has_decreased_within(smoothed_rtt_ns_, now)) return;
  decrease(std::max(1 - config_.max_decrease, 1 / window_packets_), now);
}

uint64_t Swift::rate(TimeNs /*now*/) {
  if (smoothed_rtt_ns_ == 0) return kUnlimited;  // no round trip measured yet
  return std::max(static_cast<uint64_t>(window_packets_ * mtu_bytes_ * 1e9 / smoothed_rtt_ns_),
                  config_.min_bytes_per_s);
}

/// Weighs a sample by the time since the one before. A flow below one packet in a round trip has few samples,
/// and an old round trip would pace it by a queue that is gone.
void Swift::smooth(double rtt_ns, double gap_ns) {
  const double round_trips =
      smoothed_rtt_ns_ == 0 ? kSmoothedRoundTrips : std::clamp(gap_ns / rtt_ns, 1.0, kSmoothedRoundTrips);
  smoothed_rtt_ns_ += (rtt_ns - smoothed_rtt_ns_) * round_trips / kSmoothedRoundTrips;
}

/// Returns the delay to reach, longer for smaller windows (the paper's flow-based scaling). The more flows
/// share a queue, the smaller are their windows and the longer is the queue that their packets form by
/// chance. Of the flows of one queue, those with smaller windows grow while the others shrink.
double Swift::target_ns() const {
  constexpr auto inverse_root = [](double packets) { return 1 / std::sqrt(packets); };
  const double least = inverse_root(kMostScaledPackets);
  const double share = (inverse_root(window_packets_) - least) / (inverse_root(kLeastScaledPackets) - least);
  return static_cast<double>(config_.target_delay_ns) +
         static_cast<double>(config_.scaling_range_ns) * std::clamp(share, 0.0, 1.0);
}

/// Signals within one round trip concern the same queue.
bool Swift::has_decreased_within(double span_ns, TimeNs now) const {
  return last_decrease_ns_ != 0 && static_cast<double>(now - last_decrease_ns_) < span_ns;
}

void Swift::decrease(double factor, TimeNs now) {
  last_decrease_ns_ = now;
  window_packets_ = std::max(window_packets_ * factor, config_.min_window_packets);
}

}  // namespace faultline::transport
