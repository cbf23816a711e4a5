// SPDX-License-Identifier: BSD-3-Clause
// Loss, retransmission and acknowledgement, as packet traces in virtual time. IBA vol. 1, 9.7.
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::retransmission_test {
namespace {

using transport::CompletionStatus;

constexpr uint64_t bit(unsigned packet) {
  return uint64_t{1} << packet;
}

TEST(Retransmission, GoesBackToALostPacket) {
  SimulationScript script = quiet_fabric();
  script.a_to_b.drop_mask = bit(1);
  Pair pair(script);
  pair.write(4096);
  pair.run();
  EXPECT_EQ(pair.lines(), (Lines{"a> WRITE_FIRST 100", "a> WRITE_MIDDLE 101 lost", "a> WRITE_MIDDLE 102",
                                 "a> WRITE_LAST 103!", "b> ACK 101 NAK0", "a> WRITE_MIDDLE 101",
                                 "a> WRITE_MIDDLE 102", "a> WRITE_LAST 103!", "b> ACK 103"}));
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 4096));
}

TEST(Retransmission, SendsOneSequenceNakAGap) {
  SimulationScript script = quiet_fabric();
  script.a_to_b.drop_mask = bit(0) | bit(1) | bit(2);
  Pair pair(script);
  for (int i = 0; i < 8; ++i) pair.write(100);
  pair.run();
  EXPECT_EQ(pair.counters_b().naks_sent, 1U);
  EXPECT_EQ(pair.counters_a().naks_received, 1U);
  EXPECT_EQ(pair.counters_a().sequence_naks_received, 1U);
  EXPECT_EQ(pair.counters_a().retransmitted_packets, 8U);
  EXPECT_EQ(pair.a.poll_sends().size(), 8U);
}

TEST(Retransmission, ALostAckIsMadeGoodByTheNext) {
  SimulationScript script = quiet_fabric();
  script.b_to_a.drop_mask = bit(0);
  Pair pair(script);
  pair.write(100);
  pair.simulation.at(pair.simulation.now() + 50 * kMicrosecond, [&] { pair.write(100); });
  pair.run();
  EXPECT_EQ(pair.lines(),
            (Lines{"a> WRITE_ONLY 100!", "b> ACK 100 lost", "a> WRITE_ONLY 101!", "b> ACK 101"}));
  EXPECT_EQ(pair.a.poll_sends().size(), 2U);
}

TEST(Retransmission, ALostLastAckCostsOneTimeOutAndTheRequestRunsOnce) {
  SimulationScript script = quiet_fabric();
  script.b_to_a.drop_mask = bit(0);
  Pair pair(script);
  pair.receive(100);
  pair.receive(100);
  pair.send(100);
  pair.run();
  EXPECT_EQ(pair.lines(), (Lines{"a> SEND_ONLY 100!", "b> ACK 100 lost", "a> SEND_ONLY 100!", "b> ACK 100"}));
  EXPECT_GE(pair.sent_at(2), uint64_t{4096} << 14);  // ibv_modify_qp(3): 4.096 us x 2^timeout
  EXPECT_EQ(pair.counters_b().duplicate_requests, 1U);
  EXPECT_EQ(pair.b.poll_receives().size(), 1U);
}

/// Loses the ACK of a WRITE. Returns the time from the request to its retransmission; 0: there is none.
uint64_t wait_for_a_lost_ack(uint8_t timeout, uint64_t min_ack_timeout_ns) {
  SimulationScript script = quiet_fabric();
  script.a.core.min_ack_timeout_ns = min_ack_timeout_ns;
  script.b_to_a.drop_mask = bit(0);
  ConnectionScript connection;
  connection.timeout = timeout;
  Pair pair(script, connection);
  pair.write(100);
  pair.run();
  EXPECT_EQ(transport::attributes_of(pair.a.qp()).timeout, timeout) << "ibv_query_qp";
  return pair.lines().size() > 2 ? pair.sent_at(2) : 0;
}

TEST(Retransmission, ADeviceHasASmallestAckTimeout) {
  constexpr uint64_t kLeastNs = 500 * kMillisecond;
  const auto of_program_ns = [](uint8_t timeout) { return uint64_t{4096} << timeout; };
  const uint64_t raised_ns = wait_for_a_lost_ack(14, kLeastNs);
  EXPECT_GE(raised_ns, kLeastNs);
  EXPECT_LT(raised_ns, kLeastNs + kMillisecond);
  const uint64_t plain_ns = wait_for_a_lost_ack(14, 0);
  EXPECT_GE(plain_ns, of_program_ns(14));
  EXPECT_LT(plain_ns, 4 * of_program_ns(14)) << "IBA 9.7.6.1.3";
  const uint64_t longer_ns = wait_for_a_lost_ack(18, kLeastNs);
  EXPECT_GE(longer_ns, of_program_ns(18)) << "the program's is longer";
  EXPECT_EQ(wait_for_a_lost_ack(0, kLeastNs), 0U) << "0 is no timeout (ibv_modify_qp(3))";
}

TEST(Retransmission, ARepeatedRequestIsAcknowledgedAndNotRunAgain) {
  SimulationScript script = quiet_fabric();
  script.a_to_b.duplicate_mask = bit(0);
  Pair pair(script);
  pair.receive(100);
  pair.receive(100);
  pair.send(100);
  pair.run();
  EXPECT_EQ(pair.b.poll_receives().size(), 1U);
  EXPECT_EQ(pair.counters_b().duplicate_requests, 1U);
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::success});
}

TEST(Retransmission, ALostReadResponseIsAskedForFromWhereItIsMissing) {
  SimulationScript script = quiet_fabric();
  script.b_to_a.drop_mask = bit(1);
  Pair pair(script);
  pair.read(4096);
  pair.run();
  EXPECT_EQ(pair.lines(),
            (Lines{"a> READ_REQ 100!", "b> READ_RESP_FIRST 100", "b> READ_RESP_MIDDLE 101 lost",
                   "b> READ_RESP_MIDDLE 102", "b> READ_RESP_LAST 103", "a> READ_REQ 101!",
                   "b> READ_RESP_FIRST 101", "b> READ_RESP_MIDDLE 102", "b> READ_RESP_LAST 103"}));
  wire::Packet packet;
  ASSERT_EQ(wire::parse(pair.simulation.trace.entries()[5].frame, packet), wire::ParseError::none);
  EXPECT_EQ(packet.reth().va, pair.pinned_b.base + 1024);
  EXPECT_EQ(packet.reth().length_bytes, 3072U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 4096));
}

TEST(Retransmission, ACorruptedPacketIsALostOne) {
  SimulationScript script = quiet_fabric();
  script.a_to_b.corrupt_mask = bit(0);
  Pair pair(script);
  pair.write(1000);
  pair.write(1000);
  pair.run();
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 1000));
  EXPECT_EQ(pair.a.poll_sends().size(), 2U);
}

TEST(Retransmission, EndsInRetryExceededAfterTheCount) {
  for (const uint8_t retry_count : {uint8_t{0}, uint8_t{3}, uint8_t{7}}) {
    SimulationScript script = quiet_fabric();
    script.a_to_b.dead_from_ns = 0;
    ConnectionScript connection;
    connection.retry_count = retry_count;
    connection.timeout = 12;
    Pair pair(script, connection);
    pair.write(100);
    pair.write(100);
    pair.run();
    // One attempt and its retries, each of both requests.
    EXPECT_EQ(pair.lines().size(), 2U * (1U + retry_count));
    for (unsigned i = 1; i <= retry_count; ++i)
      EXPECT_GE(pair.sent_at(2 * i) - pair.sent_at(2 * (i - 1)), uint64_t{4096} << 12);
    EXPECT_EQ(Pair::statuses(pair.a.poll_sends()),
              (Statuses{CompletionStatus::retry_exceeded, CompletionStatus::work_request_flushed}));
    EXPECT_EQ(pair.a.state(), transport::QpState::err);
    EXPECT_EQ(pair.counters_a().timeouts, 1U + retry_count);
    EXPECT_EQ(pair.counters_a().retries_exceeded, 1U);
  }
}

TEST(Retransmission, PsnsWrapAt24Bits) {
  SimulationScript script = quiet_fabric();
  script.a_to_b.drop_mask = bit(2);
  ConnectionScript connection;
  connection.psn_a = wire::Psn::kMask - 1;
  Pair pair(script, connection);
  pair.write(4096);
  pair.run();
  EXPECT_EQ(pair.lines(), (Lines{"a> WRITE_FIRST 16777214", "a> WRITE_MIDDLE 16777215",
                                 "a> WRITE_MIDDLE 0 lost", "a> WRITE_LAST 1!", "b> ACK 0 NAK0",
                                 "a> WRITE_MIDDLE 0", "a> WRITE_LAST 1!", "b> ACK 1"}));
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 4096));
}

TEST(Acknowledgement, OneForABurstAndOneForEveryAckReq) {
  // A burst of packets that arrive together has one ACK, for the last packet (IBA 9.7.5.1.2).
  Pair burst;
  for (int i = 0; i < 16; ++i) burst.write(64);
  burst.run();
  EXPECT_EQ(burst.counters_b().acks_sent, 1U);
  EXPECT_EQ(burst.lines().back(), "b> ACK 115");

  // If the packets arrive apart, each AckReq is acknowledged.
  Pair apart;
  for (unsigned i = 0; i < 4; ++i)
    apart.simulation.at(apart.simulation.now() + i * 100 * kMicrosecond, [&] { apart.write(64); });
  apart.run();
  EXPECT_EQ(apart.counters_b().acks_sent, 4U);
}

TEST(Acknowledgement, AckReqComesEverySoManyPacketsAndAtTheEnd) {
  SimulationScript script = quiet_fabric();
  script.a.core.ack_every_packets = 2;
  Pair pair(script);
  pair.write(5 * 1024);
  pair.run();
  EXPECT_EQ(pair.lines().front(), "a> WRITE_FIRST 100");
  EXPECT_EQ(pair.lines()[1], "a> WRITE_MIDDLE 101!");
  EXPECT_EQ(pair.lines()[3], "a> WRITE_MIDDLE 103!");
  EXPECT_EQ(pair.lines()[4], "a> WRITE_LAST 104!");
}

TEST(Acknowledgement, TheWindowHoldsBackWhatWouldOverrunIt) {
  SimulationScript script = quiet_fabric();
  script.a.core.window_packets = 4;
  Pair pair(script);
  pair.write(10 * 1024);
  pair.run();
  int in_flight = 0;
  for (const std::string& line : pair.lines()) {
    in_flight = line[0] == 'a' ? in_flight + 1 : 0;
    EXPECT_LE(in_flight, 4) << line;
  }
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 10 * 1024));
}

TEST(Port, AFullRingAndAnEmptyPoolOnlyCostTime) {
  SimulationScript script = quiet_fabric();
  script.a_to_b.picoseconds_per_byte = 800;
  script.a.port.tx_buffers = 1;
  script.a.port.tx_ring = 1;
  Pair pair(script);
  pair.write(20 * 1024);
  pair.run();
  EXPECT_EQ(pair.counters_a().retransmitted_packets, 0U);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 20 * 1024));
  EXPECT_EQ(pair.a.poll_sends().size(), 1U);
}

}  // namespace
}  // namespace faultline::sim::retransmission_test
