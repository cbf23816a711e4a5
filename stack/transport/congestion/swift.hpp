// SPDX-License-Identifier: BSD-3-Clause
// Delay-based rate control. The window counts packets and may be less than one. It bounds what is in flight,
// and is sent evenly over the round trip.
#pragma once

#include <algorithm>
#include <cmath>

#include "stack/transport/congestion/rate_control.hpp"

namespace faultline::transport {

class Swift final : public RateControl {
 public:
  Swift(const SwiftConfig& config, uint32_t mtu_bytes)
      : config_(config), mtu_bytes_(mtu_bytes), window_packets_(config.initial_window_packets) {}

  void on_sent(uint32_t /*bytes*/, TimeNs /*now*/) override {}
  void on_round_trip(uint64_t rtt_ns, TimeNs now) override;
  void on_notification(TimeNs /*now*/) override {}
  void on_loss(TimeNs now) override;
  [[nodiscard]] uint32_t most_in_flight_packets() const override {
    return static_cast<uint32_t>(std::max(std::ceil(window_packets_), 1.0));
  }
  /// Four times per window, so that a small window does not stall for lack of acknowledgements.
  [[nodiscard]] uint32_t ack_every_packets() const override {
    return window_packets_ < 4 ? 1 : static_cast<uint32_t>(window_packets_ / 4);
  }
  [[nodiscard]] uint64_t rate(TimeNs now) override;

  [[nodiscard]] double window_packets() const { return window_packets_; }

 private:
  void smooth(double rtt_ns, double gap_ns);
  [[nodiscard]] double target_ns() const;
  [[nodiscard]] bool has_decreased_within(double span_ns, TimeNs now) const;
  void decrease(double factor, TimeNs now);

  const SwiftConfig& config_;
  const uint32_t mtu_bytes_;
  double window_packets_;
  double smoothed_rtt_ns_ = 0;
  TimeNs last_decrease_ns_ = 0;
  TimeNs last_sample_ns_ = 0;
};

}  // namespace faultline::transport
