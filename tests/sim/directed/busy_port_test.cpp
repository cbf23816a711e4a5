// SPDX-License-Identifier: BSD-3-Clause
// A port or a path that takes few frames: requests do not starve, retries are not used up, and the window
// shrinks to what the path holds.
#include <algorithm>

#include "stack/transport/qp/queue_pair.hpp"
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::busy_port_test {
namespace {

using transport::CompletionStatus;
using transport::SendOpcode;

TEST(BusyPort, AnswersDoNotStarveRequests) {
  SimulationScript script = quiet_fabric();
  script.b_to_a.picoseconds_per_byte = 8'000;  // 1 Gb/s
  Pair pair(script);
  constexpr int kReads = 16;
  constexpr uint32_t kReadBytes = 65'536;
  for (int i = 0; i < kReads; ++i) pair.read(kReadBytes);
  // By now b has hundreds of responses to send, and the link takes one in 8 us.
  pair.simulation.at(pair.simulation.now() + 2 * kMillisecond, [&] {
    EXPECT_TRUE(pair.b.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_b, 64, &pair.pinned_a)));
  });
  pair.run();
  const Lines lines = pair.lines();
  const auto is_request = [](const std::string& line) { return line.starts_with("b> WRITE_ONLY"); };
  const auto is_answer = [](const std::string& line) { return line.starts_with("b> READ_RESP"); };
  const auto request = std::find_if(lines.begin(), lines.end(), is_request);
  ASSERT_NE(request, lines.end());
  const auto before = std::count_if(lines.begin(), request, is_answer);
  const auto all = std::count_if(lines.begin(), lines.end(), is_answer);
  EXPECT_GT(all, 1000);
  EXPECT_LT(before, all / 2);
  EXPECT_EQ(pair.a.poll_sends().size(), size_t{kReads});
  EXPECT_EQ(Pair::statuses(pair.b.poll_sends()), Statuses{CompletionStatus::success});
}

TEST(BusyPort, ARequestThatIsNotSentUsesNoRetry) {
  SimulationScript script = quiet_fabric();
  script.turn_ns = kMicrosecond;
  script.a_to_b.drop_mask = 1;
  constexpr uint8_t kOneMillisecond = 8;
  Pair pair(script, {.timeout = kOneMillisecond});
  Endpoint other_a(pair.simulation, pair.simulation.a, {});
  Endpoint other_b(pair.simulation, pair.simulation.b, {});
  ASSERT_TRUE(connect(pair.simulation, other_a, other_b, {}));
  pair.write(100);
  // From now on frames of another QP wait for the port, and no further ones have room.
  const uint32_t ring = pair.simulation.a.port.script().tx_ring;
  const TimeNs begin = pair.simulation.now();
  constexpr int kOthers = 40;
  pair.simulation.at(begin + kMillisecond / 2, [&] {
    pair.simulation.a.port.script().tx_ring = 0;
    for (int i = 0; i < kOthers; ++i)
      EXPECT_TRUE(other_a.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_a, 64, &pair.pinned_b)));
  });
  pair.simulation.at(begin + 60 * kMillisecond, [&] { pair.simulation.a.port.script().tx_ring = ring; });
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::success});
  EXPECT_EQ(other_a.poll_sends().size(), size_t{kOthers});
  EXPECT_EQ(pair.counters_a().timeouts, 1U);
  EXPECT_EQ(pair.counters_a().retransmitted_packets, 1U);
}

// The window of one QP is 256 packets; the queue holds 29. A cut window is whole again after the losses.
TEST(BusyPath, ReadsAreCutToWhatThePathHolds) {
  SimulationScript script = quiet_fabric();
  script.b_to_a.bottleneck_picoseconds_per_byte = 8'000;  // 1 Gb/s
  script.b_to_a.queue_limit_bytes = 32'768;
  Pair pair(script, {.max_rd_atomic = 128});
  constexpr size_t kReads = 60;
  constexpr size_t kPacketsEach = 16;
  for (size_t i = 0; i < kReads; ++i) pair.read(kPacketsEach * 1024);
  uint32_t most_cut_packets = 0;
  EXPECT_TRUE(pair.simulation.run_until(
      [&] {
        most_cut_packets = std::max<uint32_t>(most_cut_packets, pair.a.qp()->requester.window_cut_packets);
        return false;
      },
      10'000 * kMillisecond));
  EXPECT_GT(most_cut_packets, 200U);
  EXPECT_EQ(pair.a.poll_sends().size(), kReads);
  const Lines lines = pair.lines();
  const auto answers = static_cast<size_t>(std::count_if(
      lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("b> READ_RESP"); }));
  EXPECT_LT(answers, 3 * kReads * kPacketsEach);

  pair.simulation.b_to_a.script().bottleneck_picoseconds_per_byte = 0;
  for (size_t i = 0; i < 1'000; ++i) {
    pair.write(8 * 1024);
    ASSERT_TRUE(pair.simulation.run(100'000 * kMillisecond));
    EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::success});
  }
  EXPECT_EQ(pair.a.qp()->requester.window_cut_packets, 0U);
}

}  // namespace
}  // namespace faultline::sim::busy_port_test
