// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/traffic/pattern.hpp"

#include <algorithm>
#include <cstring>

namespace faultline::perf {

namespace {

/// SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014): neighbouring inputs differ in half of the
/// output bits.
uint64_t word_of(uint64_t message, uint64_t index) {
  uint64_t x = message * 0x9e3779b97f4a7c15U + index * 0xd1b54a32d192ed03U + 0x2545f4914f6cdd1dU;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

void fill_pattern(std::span<uint8_t> bytes, uint64_t message) {
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = word_of(message, at / 8);
    std::memcpy(bytes.data() + at, &word, std::min<size_t>(8, bytes.size() - at));
  }
}

uint64_t count_wrong(std::span<const uint8_t> bytes, uint64_t message) {
  uint64_t wrong = 0;
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = word_of(message, at / 8);
    const size_t length = std::min<size_t>(8, bytes.size() - at);
    if (std::memcmp(bytes.data() + at, &word, length) == 0) continue;
    const auto* expected = reinterpret_cast<const uint8_t*>(&word);
    for (size_t i = 0; i < length; ++i) wrong += bytes[at + i] != expected[i] ? 1 : 0;
  }
  return wrong;
}

}  // namespace faultline::perf
