// SPDX-License-Identifier: BSD-3-Clause
// What a bad link does to each frame. It neither holds frames nor knows the time: it says what is to become
// of the next one.
#pragma once

#include <cstdint>
#include <span>

#include "stack/chaos/random.hpp"

namespace faultline::chaos {

/// Ratios are probabilities in 0..1, each frame by itself.
struct LinkModelConfig {
  double loss = 0;
  double duplicate = 0;
  double corrupt = 0;   ///< one bit is turned over
  double ecn_mark = 0;  ///< congestion experienced, where the frame is ECN-capable
  double reorder = 0;   ///< held for reorder_delay_ns while later ones pass
  uint64_t reorder_delay_ns = 50'000;
  uint64_t delay_ns = 0;
  uint64_t delay_jitter_ns = 0;  ///< up to this much more; reorders too
  uint64_t seed = 1;

  [[nodiscard]] bool harmless() const {
    return loss <= 0 && duplicate <= 0 && corrupt <= 0 && ecn_mark <= 0 && reorder <= 0 && delay_ns == 0 &&
           delay_jitter_ns == 0;
  }
};

struct Verdict {
  bool drop = false;
  bool duplicate = false;
  bool corrupt = false;
  bool mark = false;
  uint64_t delay_ns = 0;
  uint32_t bit = 0;  ///< to turn over, counted from the frame's start
};

class LinkModel {
 public:
  explicit LinkModel(const LinkModelConfig& config) : config_(config), random_(config.seed) {}

  [[nodiscard]] Verdict next(uint32_t frame_bytes);
  [[nodiscard]] const LinkModelConfig& config() const { return config_; }

 private:
  const LinkModelConfig config_;
  Random random_;
};

/// Turns the verdict's bit over, and sets congestion experienced where the frame is an ECN-capable RoCEv2
/// packet (RFC 3168; the ICRC does not cover these bits, the IPv4 header's checksum does and is mended).
void damage(std::span<uint8_t> frame, const Verdict& verdict);

}  // namespace faultline::chaos
