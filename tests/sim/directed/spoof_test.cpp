// SPDX-License-Identifier: BSD-3-Clause
// Packets from an attacker: what the checks of address, QPN and PSN each reject, and what no check can reject
// (docs/security.md).
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::spoof_test {
namespace {

using transport::AsyncEvent;
using transport::CompletionStatus;
using transport::DropReason;
using transport::QpState;

// First PSN of a Pair's connection.
constexpr uint32_t kFirstPsn = 100;
constexpr uint32_t kBytes = 512;

/// Returns the peer's own address.
wire::Gid peers_gid(Pair& pair, SimHost& from) {
  return pair.simulation.path(from, pair.simulation.peer_of(from)).path.source_gid;
}

wire::PacketFields write_fields(const Pair& pair, uint32_t psn, uint32_t rkey) {
  wire::PacketFields fields;
  fields.bth.opcode = wire::Opcode::rc_write_only;
  fields.bth.psn = wire::Psn(psn);
  fields.reth = {pair.pinned_b.base, rkey, kBytes};
  return fields;
}

uint64_t drops(const transport::CoreCounters& counters, DropReason reason) {
  return counters.drops[static_cast<size_t>(reason)];
}

/// Checks that a WRITE from the peer still arrives and causes no retransmission.
void expect_goes_on(Pair& pair) {
  pair.write(3000);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::success});
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 3000));
  EXPECT_EQ(pair.counters_a().retransmitted_packets, 0U);
}

// Everything is correct except the address: the packet is dropped first and without a response.
TEST(Spoof, FromAnotherAddressNothingReachesAQp) {
  Pair pair;
  const std::vector<uint8_t> before = pair.pinned_b.bytes;
  wire::Gid other = peers_gid(pair, pair.simulation.a);
  other.bytes[15] ^= 1;
  pair.forge(pair.simulation.a, pair.b.qpn(), other, write_fields(pair, kFirstPsn, pair.pinned_b.key),
             kBytes);
  wire::PacketFields answer;
  answer.bth.opcode = wire::Opcode::rc_acknowledge;
  answer.bth.psn = wire::Psn(kFirstPsn);
  answer.aeth = {wire::kAethNak | 1, 0};
  pair.forge(pair.simulation.a, pair.b.qpn(), other, answer, 0);
  pair.run();
  EXPECT_EQ(drops(pair.counters_b(), DropReason::source_address), 2U);
  EXPECT_EQ(pair.pinned_b.bytes, before);
  EXPECT_EQ(pair.counters_b().naks_sent + pair.counters_b().acks_sent, 0U);
  expect_goes_on(pair);
}

// The peer sends from its own address to another address of this host, which the connection does not use.
TEST(Spoof, ToAnotherAddressOfTheHostNothingReachesAQp) {
  Pair pair;
  const std::vector<uint8_t> before = pair.pinned_b.bytes;
  wire::Gid other = pair.simulation.path(pair.simulation.a, pair.simulation.b).path.destination_gid;
  other.bytes[15] ^= 1;
  pair.forge_to(pair.simulation.a, other, pair.b.qpn(), write_fields(pair, kFirstPsn, pair.pinned_b.key),
                kBytes);
  wire::PacketFields answer;
  answer.bth.opcode = wire::Opcode::rc_acknowledge;
  answer.bth.psn = wire::Psn(kFirstPsn);
  answer.aeth = {wire::kAethNak | 1, 0};
  pair.forge_to(pair.simulation.a, other, pair.b.qpn(), answer, 0);
  wire::PacketFields notification;
  notification.bth.opcode = wire::Opcode::cnp;
  notification.bth.becn = true;
  pair.forge_to(pair.simulation.a, other, pair.b.qpn(), notification, 0);
  pair.run();
  EXPECT_EQ(pair.pinned_b.bytes, before);
  EXPECT_EQ(pair.counters_b().naks_sent + pair.counters_b().acks_sent, 0U);
  EXPECT_EQ(pair.counters_b().cnps_received, 0U);
  EXPECT_EQ(drops(pair.counters_b(), DropReason::destination_address), 3U);
  expect_goes_on(pair);
}

// The peer's address and QPN with a guessed PSN cause no NAK, so the peer retransmits nothing. A nearby PSN
// is handled as a gap.
TEST(Spoof, AGuessAtThePsnCostsThePeerNothing) {
  for (const uint32_t ahead : {0x10001U, 0x100000U, 0x7fffffU, 0x900000U, 0xff0000U}) {
    Pair pair;
    const std::vector<uint8_t> before = pair.pinned_b.bytes;
    pair.forge(pair.simulation.a, pair.b.qpn(), peers_gid(pair, pair.simulation.a),
               write_fields(pair, kFirstPsn + ahead, pair.pinned_b.key), kBytes);
    pair.run();
    EXPECT_EQ(pair.pinned_b.bytes, before) << ahead;
    EXPECT_EQ(pair.counters_b().naks_sent + pair.counters_b().acks_sent, 0U) << ahead;
    EXPECT_EQ(
        drops(pair.counters_b(), ahead < 0x800000 ? DropReason::out_of_sequence : DropReason::stale_request),
        1U)
        << ahead;
    expect_goes_on(pair);
  }
  Pair pair;
  pair.forge(pair.simulation.a, pair.b.qpn(), peers_gid(pair, pair.simulation.a),
             write_fields(pair, kFirstPsn + 0x10000, pair.pinned_b.key), kBytes);
  pair.run();
  EXPECT_EQ(pair.counters_b().naks_sent, 1U);
}

// Half of all PSNs are in the past. An RNR NAK with an old PSN must not delay a READ.
TEST(Spoof, AGuessedRnrNakHoldsUpNoRead) {
  SimulationScript script = quiet_fabric();
  Pair pair(script);
  pair.read(kBytes);
  wire::PacketFields nak;
  nak.bth.opcode = wire::Opcode::rc_acknowledge;
  nak.bth.psn = wire::Psn(kFirstPsn - (1U << 20));
  nak.aeth = {wire::kAethRnrNak | 31, 0};
  pair.simulation.at(pair.simulation.now() + 500, [&] {
    pair.forge(pair.simulation.b, pair.a.qpn(), peers_gid(pair, pair.simulation.b), nak, 0);
  });
  pair.run();
  EXPECT_EQ(pair.counters_a().rnr_naks_received, 0U);
  EXPECT_EQ(drops(pair.counters_a(), DropReason::stale_ack), 1U);
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::success});
  EXPECT_EQ(pair.counters_a().retransmitted_packets, 0U);
}

// Duplicates are acknowledged again, but once per batch of packets that arrive together.
TEST(Spoof, AFloodOfDuplicatesIsNotAnsweredByAFlood) {
  Pair pair;
  pair.write(kBytes);
  pair.run();
  ASSERT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::success});
  const std::vector<uint8_t> before = pair.pinned_b.bytes;
  const uint64_t acks_before = pair.counters_b().acks_sent;
  constexpr uint64_t kDuplicates = 200;
  for (uint64_t i = 0; i < kDuplicates; ++i)
    pair.forge(pair.simulation.a, pair.b.qpn(), peers_gid(pair, pair.simulation.a),
               write_fields(pair, kFirstPsn, pair.pinned_b.key), kBytes);
  pair.run();
  EXPECT_EQ(pair.pinned_b.bytes, before);
  EXPECT_EQ(pair.counters_b().naks_sent, 0U);
  EXPECT_GE(pair.counters_b().acks_sent, acks_before + 1);
  EXPECT_LE(pair.counters_b().acks_sent, acks_before + kDuplicates / 8);
  expect_goes_on(pair);
}

// A READ that was answered long ago arrives again, over a slow path or replayed by an attacker. The pending
// responses after it wait for a page and must not be requested again.
TEST(Spoof, AnOldReadAgainTakesNoAnswerFromTheOthers) {
  Pair pair;
  pair.read(kBytes);
  pair.run();
  ASSERT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::success});
  const uint64_t before = pair.counters_a().tx_packets;
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(
        pair.a.post_send(pair.request(transport::SendOpcode::rdma_read, pair.pinned_a, 3000, &pair.paged_b)));
  wire::PacketFields again;
  again.bth.opcode = wire::Opcode::rc_read_request;
  again.bth.psn = wire::Psn(kFirstPsn);
  again.reth = {pair.pinned_b.base, pair.pinned_b.key, kBytes};
  // The requests have arrived, and the fault of their page is still outstanding.
  pair.simulation.at(pair.simulation.now() + 5 * kMicrosecond, [&] {
    pair.forge(pair.simulation.a, pair.b.qpn(), peers_gid(pair, pair.simulation.a), again, 0);
  });
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses(3, CompletionStatus::success));
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 3000));
  EXPECT_EQ(drops(pair.counters_b(), DropReason::duplicate), 1U);
  EXPECT_EQ(pair.counters_a().tx_packets - before, 3U) << "asked once";
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
  EXPECT_EQ(pair.counters_a().retransmitted_packets, 0U);
}

// If address, QPN and PSN are known, only the rkey is left to guess. One wrong guess ends the connection: the
// memory is unchanged, and the program receives an error.
TEST(Spoof, AWrongRkeyIsTheLastGuess) {
  Pair pair;
  const std::vector<uint8_t> before = pair.pinned_b.bytes;
  pair.forge(pair.simulation.a, pair.b.qpn(), peers_gid(pair, pair.simulation.a),
             write_fields(pair, kFirstPsn, pair.pinned_b.key ^ 0x100), kBytes);
  pair.run();
  EXPECT_EQ(pair.b.state(), QpState::err);
  EXPECT_EQ(pair.pinned_b.bytes, before);
  ASSERT_EQ(pair.simulation.b.events.size(), 1U);
  pair.forge(pair.simulation.a, pair.b.qpn(), peers_gid(pair, pair.simulation.a),
             write_fields(pair, kFirstPsn + 1, pair.pinned_b.key), kBytes);
  pair.run();
  EXPECT_EQ(pair.pinned_b.bytes, before);
  EXPECT_EQ(drops(pair.counters_b(), DropReason::qp_state), 1U);
}

// RoCEv2 has no protection against a sender that knows all of these values.
TEST(Spoof, WhoKnowsAddressQpnPsnAndRkeyIsThePeer) {
  Pair pair;
  pair.receive(kBytes);
  wire::PacketFields send;
  send.bth.opcode = wire::Opcode::rc_send_only;
  send.bth.psn = wire::Psn(kFirstPsn);
  pair.forge(pair.simulation.a, pair.b.qpn(), peers_gid(pair, pair.simulation.a), send, kBytes);
  pair.forge(pair.simulation.a, pair.b.qpn(), peers_gid(pair, pair.simulation.a),
             write_fields(pair, kFirstPsn + 1, pair.pinned_b.key), kBytes);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.b.poll_receives()), Statuses{CompletionStatus::success});
  EXPECT_EQ(pair.pinned_b.bytes[0], 0xee);
  EXPECT_EQ(pair.counters_b().messages_received, 2U);
}

}  // namespace
}  // namespace faultline::sim::spoof_test
