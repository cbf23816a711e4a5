// SPDX-License-Identifier: BSD-3-Clause
// The shares of ports that send frames of different sizes and at different rates.
#include "apps/switch/deficit_round_robin.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>

#include <gtest/gtest.h>

namespace faultline::switching::deficit_round_robin_test {
namespace {

constexpr uint32_t kMtu = 4518;
constexpr uint32_t kShort = 82;

/// Ports that send to one link, which takes so many frames for each call.
class Model {
 public:
  Model() { order_.set_quantum(kMtu); }
  void post(PortIndex port, uint32_t bytes, size_t frames) {
    queues_[port].insert(queues_[port].end(), frames, bytes);
    order_.add(port);
  }
  /// Serves with room for `room` frames on the link.
  size_t serve(size_t room, size_t most_frames = 64) {
    return order_.serve(most_frames, [&](PortIndex port, uint32_t most_bytes) -> DeficitRoundRobin::Step {
      auto& queue = queues_[port];
      if (queue.empty()) return {};
      if (queue.front() > most_bytes) return {.outcome = DeficitRoundRobin::Outcome::too_long};
      if (room == 0 || blocked[port]) return {.outcome = DeficitRoundRobin::Outcome::blocked};
      --room;
      const uint32_t bytes = queue.front();
      queue.pop_front();
      sent_bytes[port] += bytes;
      return {.outcome = DeficitRoundRobin::Outcome::sent, .bytes = bytes};
    });
  }
  void leave(PortIndex port) {
    queues_[port].clear();
    order_.remove(port);
  }
  [[nodiscard]] size_t waiting(PortIndex port) const { return queues_[port].size(); }

  std::array<uint64_t, 4> sent_bytes{};
  std::array<bool, 4> blocked{};

 private:
  DeficitRoundRobin order_;
  std::array<std::deque<uint32_t>, 4> queues_;
};

TEST(DeficitRoundRobin, APortThatPostsTenTimesAsMuchGetsTheSameShare) {
  for (const uint32_t bytes : {kShort, kMtu}) {
    Model model;
    for (int turn = 0; turn < 1000; ++turn) {
      model.post(0, bytes, 10);
      model.post(1, bytes, 1);
      model.serve(2);
    }
    // Port 1 has sent what it posted.
    EXPECT_LE(model.waiting(1), 2U * kMtu / bytes);
    EXPECT_NEAR(static_cast<double>(model.sent_bytes[0]), 1000.0 * bytes, 2.0 * kMtu);
  }
}

TEST(DeficitRoundRobin, SharesAreOfBytesNotOfFrames) {
  Model model;
  model.post(0, kShort, 200'000);
  model.post(1, kMtu, 2'000);
  while (model.waiting(0) != 0 && model.waiting(1) != 0) model.serve(64);
  EXPECT_NEAR(static_cast<double>(model.sent_bytes[0]), static_cast<double>(model.sent_bytes[1]), 2.0 * kMtu);
}

// A link with room for one frame at a time must not begin with the same port each time.
TEST(DeficitRoundRobin, ALinkThatIsMostlyFullIsSharedToo) {
  for (const size_t room : {1U, 3U, 7U}) {
    Model model;
    model.post(0, kShort, 400'000);
    for (PortIndex port = 1; port < 3; ++port) model.post(port, kMtu - port, 10'000);
    for (int turn = 0; turn < 3'000; ++turn) model.serve(room);
    const auto [least, most] = std::minmax_element(model.sent_bytes.begin(), model.sent_bytes.begin() + 3);
    EXPECT_LE(*most - *least, 2 * kMtu) << room;
  }
}

TEST(DeficitRoundRobin, ACallThatEndsEarlyIsContinued) {
  Model model;
  model.post(0, kShort, 10'000);
  model.post(1, kShort, 10'000);
  for (int turn = 0; turn < 500; ++turn) EXPECT_EQ(model.serve(64, 10), 10U);
  EXPECT_NEAR(static_cast<double>(model.sent_bytes[0]), static_cast<double>(model.sent_bytes[1]), 2.0 * kMtu);
}

TEST(DeficitRoundRobin, ABlockedPortHoldsNoOtherAndGainsNothingByWaiting) {
  Model model;
  model.post(0, kMtu, 10'000);
  model.post(1, kMtu, 10'000);
  model.blocked[0] = true;
  for (int turn = 0; turn < 100; ++turn) EXPECT_EQ(model.serve(10), 10U);
  EXPECT_EQ(model.sent_bytes[0], 0U);
  model.blocked[0] = false;
  model.serve(10);
  EXPECT_EQ(model.sent_bytes[0], 5U * kMtu);
}

TEST(DeficitRoundRobin, AFrameLongerThanTheQuantumIsSentAfterSomeRounds) {
  Model model;
  model.post(0, 3 * kMtu, 1);
  model.post(1, kMtu, 10);
  model.serve(64);
  EXPECT_EQ(model.waiting(0) + model.waiting(1), 0U);
}

TEST(DeficitRoundRobin, APortThatLeavesIsServedNoMore) {
  Model model;
  model.post(0, kMtu, 5);
  model.post(1, kMtu, 5);
  model.leave(0);
  EXPECT_EQ(model.serve(64), 5U);
  EXPECT_EQ(model.serve(64), 0U);
  model.post(0, kMtu, 1);
  EXPECT_EQ(model.serve(64), 1U);
}

}  // namespace
}  // namespace faultline::switching::deficit_round_robin_test
