// SPDX-License-Identifier: BSD-3-Clause
// Decides about each frame of a link besides the link model, with sight of its bytes.
#pragma once

#include <cstdint>
#include <span>

#include "stack/chaos/link_model.hpp"

namespace faultline::chaos {

class FrameJudge {
 public:
  virtual ~FrameJudge() = default;
  /// Adds to the model's verdict.
  virtual void amend(std::span<const uint8_t> frame, uint64_t now_ns, Verdict& verdict) = 0;
};

}  // namespace faultline::chaos
