// SPDX-License-Identifier: BSD-3-Clause
// QPNs: taken from the configured range, starting at a point derived from the seed, and each reused as late
// as possible.
#include <set>

#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::qpn_test {
namespace {

using transport::kQpnBlock;

constexpr uint32_t kFirst = 4 * kQpnBlock, kLast = 8 * kQpnBlock - 1;

SimulationScript script_of(uint32_t first, uint32_t last, uint32_t seed) {
  SimulationScript script = quiet_fabric();
  script.a.core.first_qpn = first;
  script.a.core.last_qpn = last;
  script.a.core.qpn_seed = seed;
  return script;
}

transport::QueuePair* make_qp(Simulation& simulation, transport::CompletionQueue& cq) {
  transport::QpInit init;
  init.send_cq = init.receive_cq = &cq;
  return simulation.a.core().create_qp(init);
}

/// Returns the numbers of `count` QPs, each destroyed before the next is created.
std::vector<uint32_t> qpns(const SimulationScript& script, size_t count) {
  Simulation simulation(script, 1);
  transport::CompletionQueue cq(8);
  std::vector<uint32_t> numbers;
  for (size_t i = 0; i < count; ++i) {
    transport::QueuePair* const qp = make_qp(simulation, cq);
    numbers.push_back(transport::qpn_of(qp));
    simulation.a.core().destroy_qp(qp);
  }
  return numbers;
}

TEST(Qpn, ANumberComesBackWhenAllOthersHaveBeenUsed) {
  SimulationScript script = script_of(kFirst, kLast, 0);
  script.a.core.max_qps = 64;
  constexpr size_t kAll = size_t{4} * 64;
  for (const uint32_t seed : {0U, 1U, 777U, 0xffffffffU}) {
    script.a.core.qpn_seed = seed;
    const std::vector<uint32_t> numbers = qpns(script, 2 * kAll);
    EXPECT_EQ(std::set(numbers.begin(), numbers.begin() + kAll).size(), kAll) << seed;
    for (size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_GE(numbers[i], kFirst);
      ASSERT_LE(numbers[i], kLast);
      ASSERT_EQ(numbers[i], numbers[i % kAll]) << "once around the range";
    }
  }
}

// A process that shares its address has four blocks: 262,144 consecutive connections.
TEST(Qpn, ASharersNumbersLastForAQuarterOfAMillionQps) {
  SimulationScript script = script_of(kFirst, kLast, 5);
  constexpr size_t kAll = size_t{4} * kQpnBlock;
  const std::vector<uint32_t> numbers = qpns(script, kAll + 1);
  EXPECT_EQ(std::set(numbers.begin(), numbers.end()).size(), kAll);
  EXPECT_EQ(numbers.back(), numbers.front());
}

TEST(Qpn, NoneOfALivingQpIsGivenOut) {
  SimulationScript script = script_of(kFirst, kLast, 3);
  script.a.core.max_qps = 16;
  script.a.core.core_count = 2;
  script.a.core.core_index = 1;
  Simulation simulation(script, 1);
  transport::CompletionQueue cq(8);
  std::vector<transport::QueuePair*> living;
  std::set<uint32_t> in_use;
  for (uint32_t i = 0; i < 500; ++i) {
    transport::QueuePair* const qp = make_qp(simulation, cq);
    ASSERT_EQ(qp == nullptr, living.size() == 8) << "eight of the sixteen are this core's";
    if (qp != nullptr) {
      EXPECT_EQ(transport::owner_of(transport::qpn_of(qp), 2), 1U);
      EXPECT_TRUE(in_use.insert(transport::qpn_of(qp)).second);
      living.push_back(qp);
    }
    if (living.size() < 8 && i % 3 != 0) continue;
    const auto gone = living.begin() + i % living.size();
    in_use.erase(transport::qpn_of(*gone));
    simulation.a.core().destroy_qp(*gone);
    living.erase(gone);
  }
  for (transport::QueuePair* qp : living) simulation.a.core().destroy_qp(qp);
}

// The order of numbers within a block also depends on the seed. With only four blocks, every fourth process
// would otherwise start with the same QPN.
TEST(Qpn, BeginsElsewhereWithAnotherSeed) {
  std::set<uint32_t> firsts;
  std::set<uint32_t> blocks;
  for (uint32_t seed = 0; seed < 64; ++seed) {
    const uint32_t number = qpns(script_of(kFirst, kLast, seed), 1)[0];
    firsts.insert(number);
    blocks.insert(number / kQpnBlock);
  }
  EXPECT_EQ(firsts.size(), 64U);
  EXPECT_EQ(blocks.size(), 4U);
}

TEST(Qpn, OneBlockIsARangeAsWell) {
  for (const uint32_t seed : {0U, 1U, 0xffffffffU}) {
    SimulationScript script = script_of(kQpnBlock, 2 * kQpnBlock - 1, seed);
    script.a.core.max_qps = 4;
    const std::vector<uint32_t> numbers = qpns(script, 9);
    EXPECT_EQ(std::set(numbers.begin(), numbers.end()).size(), 4U);
    for (const uint32_t number : numbers) EXPECT_EQ(number / kQpnBlock, 1U);
  }
}

TEST(Qpn, TheWholeRangeTakesAnySeed) {
  const transport::CoreConfig defaults;
  for (const uint32_t seed : {253U, 254U, 0xffffffffU})
    for (const uint32_t number : qpns(script_of(defaults.first_qpn, defaults.last_qpn, seed), 300)) {
      EXPECT_GE(number, defaults.first_qpn);
      EXPECT_LE(number, defaults.last_qpn);
    }
}

}  // namespace
}  // namespace faultline::sim::qpn_test
