// SPDX-License-Identifier: BSD-3-Clause
// Verifies the ICRC of a long packet while copying the payload of the previous, verified packet into its
// region. Owner: the core's thread, within one burst.
#pragma once

#include <cstdint>

#include "odp/regions/memory_access.hpp"
#include "stack/wire/packet/icrc.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::transport {

class IcrcAhead {
 public:
  explicit IcrcAhead(odp::MemoryAccess& memory) : memory_(memory) {}

  /// True if the payload is long enough for this to be faster.
  [[nodiscard]] static bool is_for(const wire::Packet& packet) {
    return packet.payload_bytes >= kMinPayloadBytes;
  }

  /// Advances to the next packet of a burst. `behind` is the packet after that one if is_for() accepts it,
  /// else nullptr.
  void advance(const wire::Packet* behind) {
    if (behind == nullptr && next_.frame == nullptr) {  // no long packets
      current_.frame = nullptr;
      return;
    }
    current_ = next_;
    next_ = {};
    if (behind != nullptr) {
      next_.frame = behind->frame;
      next_.sum = {behind->payload(), wire::icrc_before_payload(*behind), false};
    }
    memory_.offer_beside_write(next_.frame == nullptr ? nullptr : &next_.sum);
  }

  /// Call after the last packet of a burst of several: the next burst may use the same buffers.
  void end_burst() { current_.frame = nullptr; }

  /// Verifies the ICRC of the packet that `advance` reached.
  [[nodiscard]] bool matches(const wire::Packet& packet) const {
    if (current_.frame != packet.frame) return wire::icrc_matches(packet);
    const odp::CrcBeside& sum = current_.sum;
    return wire::icrc_matches(packet, sum.done ? sum.crc : wire::icrc_update(sum.crc, sum.bytes));
  }

 private:
  /// For shorter payloads, the processor's out-of-order execution already overlaps the checksum with the
  /// previous copy.
  static constexpr uint32_t kMinPayloadBytes = 2048;

  struct Ahead {
    const uint8_t* frame = nullptr;
    odp::CrcBeside sum;
  };

  odp::MemoryAccess& memory_;
  Ahead current_;
  Ahead next_;
};

}  // namespace faultline::transport
