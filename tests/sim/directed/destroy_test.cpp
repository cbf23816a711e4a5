// SPDX-License-Identifier: BSD-3-Clause
// QPs destroyed at every event of a run: with packets in flight, retransmission and RNR timers pending, page
// faults outstanding and packets parked (CVE-2026-45910, CVE-2025-21829). Nothing of a destroyed QP remains,
// and a second connection is unaffected.
#include "stack/transport/qp/queue_pair.hpp"
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::destroy_test {
namespace {

using transport::CompletionStatus;
using transport::QpType;
using transport::SendOpcode;

struct Doomed : Pair {
  Doomed(QpType type, uint64_t drop_mask)
      : Pair(script(drop_mask)),
        from(simulation, simulation.a, {.type = type}),
        to(simulation, simulation.b, {.type = type}) {
    ConnectionScript connection;
    connection.timeout = 4;  // 65 us
    connection.retry_count = 3;
    connection.min_rnr_timer = 2;  // 20 us
    EXPECT_TRUE(connect(simulation, from, to, connection));
    simulation.run();
  }

  static SimulationScript script(uint64_t drop_mask) {
    SimulationScript script = selective_fabric();
    script.a_to_b.drop_mask = script.b_to_a.drop_mask = drop_mask;
    return script;
  }

  void start() {
    // The second connection, which must be unaffected.
    write(20'000);
    const bool reads = from.qp()->type == QpType::rc;
    EXPECT_TRUE(from.post_send(request(SendOpcode::rdma_write, paged_a, 5000, &paged_b)));
    if (reads) {
      EXPECT_TRUE(from.post_send(request(SendOpcode::rdma_read, paged_a, 5000, &paged_b)));
    }
    EXPECT_TRUE(from.post_send(request(SendOpcode::send, paged_a, 3000)));
    EXPECT_TRUE(from.post_send(request(SendOpcode::send, paged_a, 3000)));
    // The receives are posted late, so RNR waits occur first.
    simulation.at(simulation.now() + 200 * kMicrosecond, [this] {
      if (to.qp() == nullptr) return;
      for (int i = 0; i < 2; ++i) EXPECT_TRUE(to.post_receive(next_wr_id++, {sge(paged_b, 3000, 8192)}));
    });
  }

  Endpoint from, to;
};

/// Destroys one end or both at event `step`. Returns false if the run ended before that event.
bool destroyed_at(QpType type, unsigned which, uint64_t drop_mask, uint64_t step) {
  Doomed pair(type, drop_mask);
  pair.start();
  for (uint64_t i = 0; i < step; ++i)
    if (!pair.simulation.step()) return false;
  if ((which & 1U) != 0) pair.from.destroy();
  if ((which & 2U) != 0) pair.to.destroy();
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), (Statuses{CompletionStatus::success}));
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 20'000));
  for (SimHost* host : {&pair.simulation.a, &pair.simulation.b}) {
    EXPECT_EQ(host->port.rx_in_use(), 0U);
    EXPECT_TRUE(host->port.fault.empty()) << host->port.fault;
    host->end();
    EXPECT_EQ(host->port.tx_with_core(), 0U);
  }
  return !testing::Test::HasFailure();
}

class Destroy : public testing::TestWithParam<std::tuple<QpType, unsigned>> {};

TEST_P(Destroy, AtEveryEventOfARun) {
  const auto [type, which] = GetParam();
  for (const uint64_t drop_mask : {0x0ULL, 0x0842'1084ULL, 0x5aa5'5aa5ULL, 0x0077'0000ULL}) {
    uint64_t step = 0;
    while (destroyed_at(type, which, drop_mask, step)) ++step;
    ASSERT_FALSE(HasFailure()) << "at event " << step << ", packets lost: " << std::hex << drop_mask;
    EXPECT_GT(step, 8U);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Destroy,
                         testing::Combine(testing::Values(QpType::rc, QpType::uc),
                                          testing::Values(1U, 2U, 3U)));

}  // namespace
}  // namespace faultline::sim::destroy_test
