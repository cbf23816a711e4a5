// SPDX-License-Identifier: BSD-3-Clause
// RoCEv2 packets in frames of any link type, whole or cut.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/faultline/story/capture_file.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::story {

enum class FrameContent : uint8_t { roce, invalid_roce, other };

/// Makes Ethernet frames of captured ones. Owns the bytes of the last packet.
class PacketReader {
 public:
  /// Fills `packet` if the frame has one; it is valid until the next call.
  [[nodiscard]] FrameContent read(const CapturedFrame& frame, wire::Packet& packet);

 private:
  std::vector<uint8_t> whole_;
};

}  // namespace faultline::story
