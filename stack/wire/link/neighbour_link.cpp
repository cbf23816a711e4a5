// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/link/neighbour_link.hpp"

#include <algorithm>

namespace faultline::wire {
namespace {

constexpr size_t kTypeAt = kEthernetBytes - 2;
constexpr size_t kMagicAt = kEthernetBytes;
constexpr size_t kFromAt = kMagicAt + 4;
constexpr size_t kToAt = kFromAt + 2;
constexpr uint32_t kMagic = 0x464c4c4d;  // "FLLM"

}  // namespace

void write_link_marker(std::span<uint8_t> frame, const MacAddress& source, const MacAddress& destination,
                       const LinkMarker& marker) {
  std::fill(frame.begin(), frame.begin() + kLinkMarkerBytes, uint8_t{0});
  std::copy(destination.bytes.begin(), destination.bytes.end(), frame.begin());
  std::copy(source.bytes.begin(), source.bytes.end(), frame.begin() + neighbour_link::kMacBytes);
  store_be16(&frame[kTypeAt], kEtherTypeMarker);
  store_be32(&frame[kMagicAt], kMagic);
  store_be16(&frame[kFromAt], marker.from_seat);
  store_be16(&frame[kToAt], marker.to_seat);
}

std::optional<LinkMarker> parse_link_marker(std::span<const uint8_t> frame) {
  if (frame.size() < kLinkMarkerBytes || load_be16(&frame[kTypeAt]) != kEtherTypeMarker ||
      load_be32(&frame[kMagicAt]) != kMagic)
    return std::nullopt;
  return LinkMarker{load_be16(&frame[kFromAt]), load_be16(&frame[kToAt])};
}

}  // namespace faultline::wire
