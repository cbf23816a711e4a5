// SPDX-License-Identifier: BSD-3-Clause
// QPNs: from the range that was given, beginning with the block that the seed says, none twice in a row.
#include <set>

#include "tests/sim/pair.hpp"

namespace faultline::sim {
namespace {

using transport::kQpnBlock;

/// The numbers of `count` QPs, each destroyed before the next is made.
std::vector<uint32_t> qpns(uint32_t first, uint32_t last, uint32_t seed, size_t count) {
  SimulationScript script = quiet_fabric();
  script.a.core.first_qpn = first;
  script.a.core.last_qpn = last;
  script.a.core.qpn_seed = seed;
  Simulation simulation(script, 1);
  transport::CompletionQueue cq(8);
  std::vector<uint32_t> numbers;
  for (size_t i = 0; i < count; ++i) {
    transport::QpInit init;
    init.send_cq = init.receive_cq = &cq;
    transport::QueuePair* const qp = simulation.a.core().create_qp(init);
    numbers.push_back(transport::qpn_of(qp));
    simulation.a.core().destroy_qp(qp);
  }
  return numbers;
}

TEST(Qpn, BeginsElsewhereWithAnotherSeed) {
  constexpr uint32_t kFirst = 4 * kQpnBlock, kLast = 8 * kQpnBlock - 1;
  std::set<uint32_t> firsts;
  for (uint32_t seed = 0; seed < 9; ++seed) {
    const std::vector<uint32_t> numbers = qpns(kFirst, kLast, seed, 9);
    for (size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_GE(numbers[i], kFirst);
      EXPECT_LE(numbers[i], kLast);
      EXPECT_EQ(numbers[i], numbers[i % 4]) << "once around the range";
    }
    EXPECT_EQ(std::set(numbers.begin(), numbers.end()).size(), 4U);
    firsts.insert(numbers[0]);
  }
  EXPECT_EQ(firsts.size(), 4U);
}

TEST(Qpn, OneBlockIsARangeAsWell) {
  for (const uint32_t seed : {0U, 1U, 0xffffffffU})
    for (const uint32_t number : qpns(kQpnBlock, 2 * kQpnBlock - 1, seed, 3)) EXPECT_EQ(number, kQpnBlock);
}

TEST(Qpn, TheWholeRangeTakesAnySeed) {
  const transport::CoreConfig defaults;
  for (const uint32_t seed : {253U, 254U, 0xffffffffU})
    for (const uint32_t number : qpns(defaults.first_qpn, defaults.last_qpn, seed, 300)) {
      EXPECT_GE(number, defaults.first_qpn);
      EXPECT_LE(number, defaults.last_qpn);
    }
}

}  // namespace
}  // namespace faultline::sim
