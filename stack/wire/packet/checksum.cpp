// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/packet/checksum.hpp"

#include <cstring>

#include "stack/wire/packet/layout.hpp"

namespace faultline::wire {

// RFC 1071 section 2(B): the sum may be taken in host order and its two bytes swapped at the end. Words of 32
// bits in a 64-bit sum need no carry handling below 16 GiB.
uint32_t ones_sum(std::span<const uint8_t> bytes) {
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  uint64_t sum = 0;
  for (; left >= 4; at += 4, left -= 4) {
    uint32_t word;
    std::memcpy(&word, at, sizeof word);
    sum += word;
  }
  if (left != 0) {
    uint32_t word = 0;
    std::memcpy(&word, at, left);
    sum += word;
  }
  sum = (sum & 0xffffffffU) + (sum >> 32);
  sum = (sum & 0xffffffffU) + (sum >> 32);
  const uint16_t folded = fold_sum(static_cast<uint32_t>(sum));
  return __builtin_bswap16(folded);
}

uint16_t udp_sum(const uint8_t* ip, bool ipv6, std::span<const uint8_t> datagram) {
  const uint32_t addresses = ipv6 ? ones_sum({ip + kIpv6SourceAt, 32}) : ones_sum({ip + kIpv4SourceAt, 8});
  return fold_sum(addresses + kProtocolUdp + static_cast<uint32_t>(datagram.size()) + ones_sum(datagram));
}

}  // namespace faultline::wire
