// SPDX-License-Identifier: BSD-3-Clause
#include "stack/chaos/link_model.hpp"

#include "stack/wire/packet/ecn.hpp"

namespace faultline::chaos {

Verdict LinkModel::next(uint32_t frame_bytes) {
  Verdict verdict;
  verdict.drop = random_.happens(config_.loss);
  verdict.duplicate = random_.happens(config_.duplicate);
  verdict.corrupt = frame_bytes != 0 && random_.happens(config_.corrupt);
  if (verdict.corrupt) verdict.bit = static_cast<uint32_t>(random_.below(uint64_t{frame_bytes} * 8));
  verdict.mark = random_.happens(config_.ecn_mark);
  verdict.delay_ns = config_.delay_ns;
  if (config_.delay_jitter_ns != 0) verdict.delay_ns += random_.below(config_.delay_jitter_ns + 1);
  if (random_.happens(config_.reorder)) verdict.delay_ns += config_.reorder_delay_ns;
  return verdict;
}

void damage(std::span<uint8_t> frame, const Verdict& verdict) {
  if (verdict.mark) static_cast<void>(wire::mark_congestion_experienced(frame));
  if (verdict.corrupt && verdict.bit / 8 < frame.size())
    frame[verdict.bit / 8] = static_cast<uint8_t>(frame[verdict.bit / 8] ^ 1U << verdict.bit % 8);
}

}  // namespace faultline::chaos
