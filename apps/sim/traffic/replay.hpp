// SPDX-License-Identifier: BSD-3-Clause
// Flows at the times that a trace states.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/sim/traffic/pattern.hpp"

namespace faultline::fabric {

class Replay final : public Pattern {
 public:
  /// The flows of two hosts take turns on their `traffic.connections` connections.
  explicit Replay(const TrafficParameters& traffic);

  [[nodiscard]] TimeNs next_ns() const override {
    return next_ == rows_.size() ? kNever : rows_[next_].start_ns;
  }
  void on_time(TimeNs now, Starter& starter) override;

 private:
  struct Row {
    TimeNs start_ns = 0;
    uint32_t connection = 0;
    uint32_t bytes = 0;
  };
  std::vector<Row> rows_;
  size_t next_ = 0;
};

}  // namespace faultline::fabric
