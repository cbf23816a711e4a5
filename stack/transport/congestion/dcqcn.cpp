// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/congestion/dcqcn.hpp"

#include <algorithm>

namespace faultline::transport {

namespace {

constexpr double kSecondNs = 1e9;
constexpr uint64_t kMeasureNs = 100'000;

}  // namespace

void Dcqcn::on_sent(uint32_t bytes, TimeNs now) {
  if (!limited_) {
    if (now - window_start_ns_ > kMeasureNs) {
      if (window_start_ns_ != 0) measured_ = measured(now);
      window_start_ns_ = now;
      window_bytes_ = 0;
    }
    window_bytes_ += bytes;
    return;
  }
  advance(now);
  if (bytes < bytes_left_) {
    bytes_left_ -= bytes;
    return;
  }
  bytes_left_ = config_.increase_bytes;
  ++byte_rounds_;
  increase();
}

double Dcqcn::measured(TimeNs now) const {
  const auto elapsed_ns = static_cast<double>(std::max<uint64_t>(now - window_start_ns_, 1));
  return static_cast<double>(window_bytes_) * kSecondNs / elapsed_ns;
}

void Dcqcn::on_notification(TimeNs now) {
  if (!limited_) {
    // The paper starts at line rate. Here the line rate depends on the port, so the measured send rate
    // replaces it.
    const double seen = std::max(measured_, now > window_start_ns_ ? measured(now) : 0.0);
    current_ = std::clamp(seen, static_cast<double>(config_.min_bytes_per_s),
                          static_cast<double>(config_.line_bytes_per_s));
    limited_ = true;
    alpha_ = 1.0;
  } else {
    advance(now);
  }
  // Equations 1 of the paper.
  target_ = current_;
  current_ = std::max(current_ * (1 - alpha_ / 2), static_cast<double>(config_.min_bytes_per_s));
  alpha_ = (1 - config_.gain) * alpha_ + config_.gain;
  timer_rounds_ = byte_rounds_ = 0;
  bytes_left_ = config_.increase_bytes;
  alpha_due_ns_ = now + config_.alpha_timer_ns;
  increase_due_ns_ = now + config_.increase_timer_ns;
}

void Dcqcn::advance(TimeNs now) {
  while (limited_ && now >= std::min(alpha_due_ns_, increase_due_ns_)) {
    if (alpha_due_ns_ <= increase_due_ns_) {
      alpha_ *= 1 - config_.gain;  // equation 2
      alpha_due_ns_ += config_.alpha_timer_ns;
    } else {
      ++timer_rounds_;
      increase();
      increase_due_ns_ += config_.increase_timer_ns;
    }
  }
}

void Dcqcn::increase() {
  const uint32_t rounds = config_.fast_recovery_rounds;
  if (std::max(timer_rounds_, byte_rounds_) >= rounds) {
    const uint32_t least = std::min(timer_rounds_, byte_rounds_);
    const bool hyper = least > rounds;
    target_ += hyper ? static_cast<double>(config_.hyper_bytes_per_s) * (least - rounds)
                     : static_cast<double>(config_.additive_bytes_per_s);
  }
  current_ = (target_ + current_) / 2;
  if (current_ < static_cast<double>(config_.line_bytes_per_s)) return;
  limited_ = false;
  window_start_ns_ = 0;
  measured_ = current_;
}

uint64_t Dcqcn::rate(TimeNs now) {
  advance(now);
  return limited_ ? static_cast<uint64_t>(current_) : kUnlimited;
}

}  // namespace faultline::transport
