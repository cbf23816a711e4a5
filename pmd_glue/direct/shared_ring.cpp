// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/direct/shared_ring.hpp"

#include <optional>
#include <utility>

#include <sys/mman.h>

#include "pmd_glue/wires/switch_protocol.hpp"

namespace faultline::glue {
static_assert(SharedRing::kLink.bytes() <= kLinkBytes && SharedRing::kSeat.bytes() <= kSeatBytes);

std::unique_ptr<SharedRing> SharedRing::begin(int memory, const Shape& shape, uint32_t side,
                                              std::unique_ptr<Inbox> inbox, uint32_t own_seat) {
  const char* why = nullptr;
  std::optional<memif::Region> region = memif::Region::map(memory, shape.bytes(), why);
  if (!region || inbox == nullptr) return nullptr;
  // A forked child that still had the memory could write to it.
  static_cast<void>(madvise(region->base(), shape.bytes(), MADV_DONTFORK));
  std::unique_ptr<SharedRing> ring(
      new SharedRing(std::move(*region), shape, side & 1U, std::move(inbox), own_seat));
  ring->ring_.begin();
  ring->arm();
  // Last: the other end may send from now on.
  ring->own().state.store(static_cast<uint32_t>(State::attached), std::memory_order_release);
  return ring;
}

SharedRing::SharedRing(memif::Region region, const Shape& shape, uint32_t side, std::unique_ptr<Inbox> inbox,
                       uint32_t own_seat)
    : ends_(reinterpret_cast<End*>(region.base())),
      side_(side),
      own_seat_(own_seat),
      inbox_(std::move(inbox)),
      ring_(side == 0 ? MemifLink::Role::client : MemifLink::Role::server,
            geometry_of(std::move(region), shape), shape.buffer_bytes) {}

memif::Geometry SharedRing::geometry_of(memif::Region region, const Shape& shape) {
  static_assert(2 * sizeof(End) <= kRingsAt);
  memif::Geometry geometry{
      .regions = {},
      .to_server = {.region = 0, .offset = kRingsAt, .log2_size = shape.log2_size},
      .to_client = {.region = 0,
                    .offset = kRingsAt + static_cast<uint32_t>(memif::ring_bytes(shape.log2_size)),
                    .log2_size = shape.log2_size}};
  geometry.regions.push_back(std::move(region));
  return geometry;
}

}  // namespace faultline::glue
