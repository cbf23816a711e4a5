// SPDX-License-Identifier: BSD-3-Clause
// What the core reports of a QP that fails: the page that was awaited, the silence, the peer's NAK.
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::failure_test {
namespace {

using status::FailureCause;
using transport::QpFailure;
using transport::SendOpcode;

TEST(Failure, ARefusedPageOfAWriteIsNamedWithItsWait) {
  Pair pair;
  pair.paged_b.add_hole(pair.paged_b.base, 4096);
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_a, 512, &pair.paged_b)));
  pair.run();
  ASSERT_EQ(pair.simulation.b.failures.size(), 1U);
  const QpFailure& there = pair.simulation.b.failures[0];
  EXPECT_EQ(there.cause, FailureCause::refused_page);
  EXPECT_TRUE(there.nak_sent);
  EXPECT_EQ(there.syndrome, 0x62) << "NAK of a remote access error (IBA 9.7.5.2.8)";
  EXPECT_EQ(there.refused_va, pair.paged_b.base);
  EXPECT_EQ(there.refused_key, pair.paged_b.key);
  ASSERT_EQ(pair.simulation.a.failures.size(), 1U);
  const QpFailure& here = pair.simulation.a.failures[0];
  EXPECT_EQ(here.cause, FailureCause::peer_refused_access);
  EXPECT_EQ(here.syndrome, 0x62) << "of the NAK that arrived";
  EXPECT_EQ(here.rkey, pair.paged_b.key);
  EXPECT_EQ(here.lkey, pair.pinned_a.key);
  EXPECT_EQ(here.local_va, pair.pinned_a.base);
  EXPECT_EQ(here.awaited_ns, 0U) << "the page of this end is pinned";
}

TEST(Failure, ARefusedPageOfARead) {
  Pair pair;
  pair.paged_b.add_hole(pair.paged_b.base, 4096);
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_read, pair.pinned_a, 512, &pair.paged_b)));
  pair.run();
  ASSERT_EQ(pair.simulation.b.failures.size(), 1U);
  EXPECT_EQ(pair.simulation.b.failures[0].cause, FailureCause::refused_page);
  EXPECT_EQ(pair.simulation.b.failures[0].refused_va, pair.paged_b.base);
}

TEST(Failure, APageOfALocalBufferThatNeverComes) {
  Pair pair;
  pair.paged_a.add_hole(pair.paged_a.base, 4096);
  ASSERT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_write, pair.paged_a, 512, &pair.pinned_b)));
  pair.run();
  ASSERT_EQ(pair.simulation.a.failures.size(), 1U);
  const QpFailure& failure = pair.simulation.a.failures[0];
  EXPECT_EQ(failure.cause, FailureCause::local_page);
  EXPECT_EQ(failure.awaited_va, pair.paged_a.base);
  EXPECT_EQ(failure.awaited_key, pair.paged_a.key);
  EXPECT_GE(failure.awaited_ns, 20 * kMicrosecond) << "the pager's service time";
}

TEST(Failure, AReceiveWhosePageNeverComes) {
  Pair pair;
  pair.paged_b.add_hole(pair.paged_b.base, 4096);
  ASSERT_TRUE(pair.b.post_receive(5, {Pair::sge(pair.paged_b, 512)}));
  pair.send(512);
  pair.run();
  // The receive fails with its status, then the NAK is reported.
  ASSERT_FALSE(pair.simulation.b.failures.empty());
  const QpFailure& failure = pair.simulation.b.failures.back();
  EXPECT_EQ(failure.cause, FailureCause::receive_memory);
  EXPECT_EQ(failure.refused_va, pair.paged_b.base);
  EXPECT_EQ(failure.refused_key, pair.paged_b.key);
}

TEST(Failure, TheSilenceCountsFromTheLastAnswer) {
  SimulationScript script = quiet_fabric();
  script.a_to_b.drop_mask = 0b1110;  // the second write and its retries
  ConnectionScript connection;
  connection.retry_count = 2;
  connection.timeout = 8;
  Pair pair(script, connection);
  pair.write(100);
  pair.run();
  ASSERT_TRUE(pair.simulation.a.failures.empty());
  const TimeNs posted_ns = pair.simulation.now();
  pair.write(100);
  pair.run();
  ASSERT_EQ(pair.simulation.a.failures.size(), 1U);
  const QpFailure& failure = pair.simulation.a.failures[0];
  EXPECT_EQ(failure.cause, FailureCause::stopped_answering);
  EXPECT_EQ(failure.retries_used, 2);
  EXPECT_EQ(failure.unanswered_packets, 1U);
  const TimeNs silent_ns = pair.simulation.now() - posted_ns;
  EXPECT_GE(failure.silent_ns, 3 * failure.ack_timeout_ns) << "two retries, each after a timeout";
  EXPECT_LE(failure.silent_ns, silent_ns);
}

TEST(Failure, RnrRetriesThatWereUsed) {
  ConnectionScript connection;
  connection.rnr_retry = 2;
  Pair pair(quiet_fabric(), connection);
  pair.send(100);
  pair.run();
  ASSERT_EQ(pair.simulation.a.failures.size(), 1U);
  EXPECT_EQ(pair.simulation.a.failures[0].cause, FailureCause::receiver_not_ready);
  EXPECT_EQ(pair.simulation.a.failures[0].rnr_retries_used, 2);
}

}  // namespace
}  // namespace faultline::sim::failure_test
