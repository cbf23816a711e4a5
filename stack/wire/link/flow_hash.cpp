// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/link/flow_hash.hpp"

#include "stack/wire/link/link_layout.hpp"
#include "stack/wire/packet/byte_order.hpp"

namespace faultline::wire {

uint32_t toeplitz_hash(std::span<const uint8_t> key, std::span<const uint8_t> input) {
  const auto key_byte = [&](size_t at) { return at < key.size() ? uint64_t{key[at]} : 0; };
  // The next 40 bits of the key; each set bit of the input selects 32 of them.
  uint64_t window = 0;
  for (size_t i = 0; i < 4; ++i) window = window << 8 | key_byte(i);
  uint32_t hash = 0;
  for (size_t i = 0; i < input.size(); ++i) {
    window = window << 8 | key_byte(i + 4);
    for (unsigned bit = 0; bit < 8; ++bit)
      if ((input[i] >> (7 - bit) & 1U) != 0) hash ^= static_cast<uint32_t>(window >> (8 - bit));
  }
  return hash;
}

std::optional<uint32_t> flow_hash(std::span<const uint8_t> frame, std::span<const uint8_t> key, bool ports) {
  EthernetView ethernet;
  if (!read_ethernet(frame, ethernet)) return std::nullopt;
  // Source and destination lie next to each other, and the UDP ports follow them: a RoCEv2 packet has no IP
  // options and no extension headers.
  const bool ipv6 = ethernet.ether_type == kEtherTypeIpv6;
  const size_t begin = ethernet.payload_at + (ipv6 ? kIpv6SourceAt : kIpv4SourceAt);
  const size_t end = ethernet.payload_at + (ipv6 ? kIpv6Bytes : kIpv4Bytes) + (ports ? 4 : 0);
  if (frame.size() < end) return std::nullopt;
  return toeplitz_hash(key, frame.subspan(begin, end - begin));
}

}  // namespace faultline::wire
