// SPDX-License-Identifier: BSD-3-Clause
// Checks the fuzzer's property on its seeds and on mutations of them that are the same in every run.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tests/unit/wire/capture.hpp"
#include "tests/unit/wire/meaning.hpp"

namespace faultline::wire::test::corpus_test {
namespace {

constexpr int kMutantsPerSeed = 400;

void mutate(Frame& frame, std::mt19937& random) {
  const auto below = [&random](size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random);
  };
  const size_t changes = 1 + below(4);
  for (size_t i = 0; i < changes && !frame.empty(); ++i) {
    // Favours the headers, which contain the lengths.
    const size_t at = below(2) == 0 ? below(frame.size()) : below(std::min<size_t>(frame.size(), 100));
    switch (below(4)) {
      case 0:
        frame[at] = static_cast<uint8_t>(frame[at] ^ 1U << below(8));
        break;
      case 1:
        frame[at] = static_cast<uint8_t>(below(256));
        break;
      case 2:
        frame.resize(at);
        break;
      default:
        frame.insert(frame.begin() + static_cast<ptrdiff_t>(at), static_cast<uint8_t>(below(256)));
        break;
    }
  }
}

TEST(Corpus, SeedsAndTheirMutantsHoldTheProperty) {
  std::mt19937 random(20260722);
  size_t accepted_mutants = 0;
  for (const auto& path : golden_captures()) {
    for (const Frame& seed : read_capture(path)) {
      ASSERT_EQ(check_parse(seed), "") << path;
      for (int i = 0; i < kMutantsPerSeed; ++i) {
        Frame mutant = seed;
        mutate(mutant, random);
        bool accepted = false;
        ASSERT_EQ(check_parse(mutant, &accepted), "") << path << ' ' << testing::PrintToString(mutant);
        accepted_mutants += accepted;
      }
    }
  }
  // Enough mutants pass the parser for the property to be meaningful.
  EXPECT_GT(accepted_mutants, 10000U);
}

}  // namespace
}  // namespace faultline::wire::test::corpus_test
