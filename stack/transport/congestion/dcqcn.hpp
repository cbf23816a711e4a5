// SPDX-License-Identifier: BSD-3-Clause
// DCQCN reaction point. State advances only on events (sends, CNPs, rate queries), so an unlimited QP needs
// no timer.
#pragma once

#include "stack/transport/congestion/rate_control.hpp"

namespace faultline::transport {

class Dcqcn final : public RateControl {
 public:
  explicit Dcqcn(const DcqcnConfig& config) : config_(config) {}

  void on_sent(uint32_t bytes, TimeNs now) override;
  void on_round_trip(uint64_t /*rtt_ns*/, TimeNs /*now*/) override {}
  void on_notification(TimeNs now) override;
  void on_loss(TimeNs /*now*/) override {}
  [[nodiscard]] uint64_t rate(TimeNs now) override;

  [[nodiscard]] double alpha() const { return alpha_; }
  [[nodiscard]] uint64_t target_bytes_per_s() const { return static_cast<uint64_t>(target_); }

 private:
  void advance(TimeNs now);
  void increase();
  [[nodiscard]] double measured(TimeNs now) const;

  const DcqcnConfig& config_;
  bool limited_ = false;
  double alpha_ = 1.0;
  double current_ = 0;  ///< R_C, bytes per second
  double target_ = 0;   ///< R_T
  uint32_t timer_rounds_ = 0;
  uint32_t byte_rounds_ = 0;
  uint64_t bytes_left_ = 0;
  TimeNs alpha_due_ns_ = 0;
  TimeNs increase_due_ns_ = 0;
  // Measured send rate while the QP is unlimited; the first rate cut starts from it.
  uint64_t window_bytes_ = 0;
  TimeNs window_start_ns_ = 0;
  double measured_ = 0;
};

}  // namespace faultline::transport
