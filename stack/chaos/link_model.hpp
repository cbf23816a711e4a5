// SPDX-License-Identifier: BSD-3-Clause
// Link fault injection: decides the fate of each frame. It holds no frames and has no clock.
#pragma once

#include <cstdint>
#include <span>

#include "stack/chaos/random.hpp"

namespace faultline::chaos {

/// Ratios are probabilities in 0..1, independent for each frame.
struct LinkModelConfig {
  double loss = 0;
  double duplicate = 0;
  double corrupt = 0;   ///< one bit is flipped
  double ecn_mark = 0;  ///< set congestion experienced if the frame is ECN-capable
  double reorder = 0;   ///< delayed by reorder_delay_ns while later frames pass
  uint64_t reorder_delay_ns = 50'000;
  uint64_t delay_ns = 0;
  uint64_t delay_jitter_ns = 0;  ///< maximum additional delay; reorders too
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
  uint32_t bit = 0;             ///< bit to flip, counted from the frame's start
  uint32_t behind = 0;          ///< so many later frames pass this one
  bool change_payload = false;  ///< with a right ICRC
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

/// Flips the verdict's bit, and sets congestion experienced if the frame is an ECN-capable RoCEv2 packet.
/// (RFC 3168; the ICRC does not cover these bits. The IPv4 header checksum does and is updated.)
void damage(std::span<uint8_t> frame, const Verdict& verdict);

}  // namespace faultline::chaos
