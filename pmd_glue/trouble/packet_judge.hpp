// SPDX-License-Identifier: BSD-3-Clause
// Applies a scenario to the packets of one core, in one direction. Owner: the engine's thread.
#pragma once

#include <string>

#include "stack/chaos/frame_judge.hpp"
#include "stack/transport/core/core.hpp"
#include "stack/trouble/director.hpp"

namespace faultline::glue {

class PacketJudge final : public chaos::FrameJudge {
 public:
  enum class Direction : uint8_t { in, out };
  /// `director` and `core` outlive the judge; `core` may be set later.
  PacketJudge(trouble::Director& director, uint32_t device, Direction direction,
              const std::unique_ptr<transport::Core>& core)
      : director_(director), device_(device), direction_(direction), core_(core) {}

  void amend(std::span<const uint8_t> frame, chaos::Verdict& verdict) override;

 private:
  /// The local QP of a packet; the device, if none is known.
  [[nodiscard]] trouble::Object object_of(const wire::Packet& packet);

  trouble::Director& director_;
  const uint32_t device_;
  const Direction direction_;
  const std::unique_ptr<transport::Core>& core_;
  std::string name_;  ///< "out RC.SEND_ONLY"; keeps its memory
};

}  // namespace faultline::glue
