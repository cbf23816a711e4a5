// SPDX-License-Identifier: BSD-3-Clause
// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the same seed gives the same numbers with every standard
// library.
#pragma once

#include <cstdint>

namespace faultline::chaos {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  uint32_t next32() { return static_cast<uint32_t>(next() >> 32); }
  /// In [0, bound); 0 if bound is 0.
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  /// In [low, high].
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  uint32_t between32(uint32_t low, uint32_t high) { return static_cast<uint32_t>(between(low, high)); }
  /// True with a probability of `ratio` in 0..1.
  bool happens(double ratio) {
    return ratio > 0 && static_cast<double>(next() >> 11) < ratio * 9007199254740992.0;  // 2^53
  }
  bool chance(uint32_t permille) { return below(1000) < permille; }
  /// Returns an independent generator, so that draws of one component do not shift those of another.
  Random fork() { return Random(next()); }

 private:
  uint64_t state_;
};

}  // namespace faultline::chaos
