// SPDX-License-Identifier: BSD-3-Clause
// Published defects of other stacks that need a connection and a wire to reproduce: packets that no correct
// peer sends, a full port at any point, many QPs that wait for one page. docs/threats.md lists all of them.
#include <algorithm>

#include "stack/transport/qp/queue_pair.hpp"
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::threats_test {
namespace {

using transport::AsyncEvent;
using transport::CompletionStatus;
using transport::QpState;
using transport::QpType;
using transport::SendOpcode;

constexpr uint32_t kQkey = 0x1234;

// A datagram with an invalid length was treated as an error of the QP.
TEST(Cve202440992, ADatagramOfABadLengthIsDroppedAndTheQpLives) {
  Pair pair;
  Endpoint end(pair.simulation, pair.simulation.b, {.type = QpType::ud});
  ASSERT_TRUE(activate_datagram(end, kQkey, 7));
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(end.post_receive(i, {Pair::sge(pair.pinned_b, 4096)}));
  wire::PacketFields fields;
  fields.deth = {kQkey, 9};
  const auto give = [&](wire::Opcode opcode, uint32_t bytes) {
    fields.bth.opcode = opcode;
    pair.forge(pair.simulation.a, end.qpn(), fields, bytes);
    pair.run();
  };
  // Longer than any path MTU allows, and than the receive after its GRH.
  give(wire::Opcode::ud_send_only, 4096);
  EXPECT_EQ(end.state(), QpState::rts);
  give(wire::Opcode::ud_send_only, 100);
  give(wire::Opcode::ud_send_only_imm, 0);
  EXPECT_EQ(end.state(), QpState::rts);
  const auto completions = end.poll_receives();
  ASSERT_GE(completions.size(), 2U);
  EXPECT_EQ(completions.back().status, CompletionStatus::success);
  EXPECT_EQ(completions[completions.size() - 2].byte_length, 140U);
  EXPECT_TRUE(pair.simulation.b.events.empty());
  end.destroy();
}

// An ATOMIC WRITE whose RETH length differs from the eight bytes that it carries.
TEST(Cve202646114, AnAtomicWriteOfAnotherLengthIsRefusedAndWritesNothing) {
  for (const uint32_t length : {0U, 1U, 4U, 7U, 9U, 16U, 0x80000000U, 0xffffffffU}) {
    Pair pair;
    const std::vector<uint8_t> before = pair.pinned_b.bytes;
    wire::PacketFields fields;
    fields.bth.opcode = wire::Opcode::rc_atomic_write;
    fields.bth.psn = wire::Psn(100);
    fields.reth = {pair.pinned_b.base, pair.pinned_b.key, length};
    pair.forge(pair.simulation.a, pair.b.qpn(), fields, 8);
    pair.run();
    EXPECT_EQ(pair.counters_b().naks_sent, 1U) << length;
    EXPECT_EQ(pair.b.state(), QpState::err) << length;
    EXPECT_EQ(pair.pinned_b.bytes, before) << length;
  }
}

// The requester's state was only partly saved when the port rejected a packet.
TEST(Cve202353539, APortThatIsFullAtAnyPacketCostsOnlyTime) {
  constexpr uint32_t kPackets = 8;
  for (uint32_t taken = 0; taken <= kPackets; ++taken) {
    for (const SendOpcode opcode : {SendOpcode::rdma_write, SendOpcode::rdma_read}) {
      SimulationScript script = quiet_fabric();
      SimHost* fills = nullptr;
      Pair pair(script);
      fills = opcode == SendOpcode::rdma_write ? &pair.simulation.a : &pair.simulation.b;
      fills->port.script().tx_ring = taken;
      ASSERT_TRUE(pair.a.post_send(pair.request(opcode, pair.pinned_a, kPackets * 1024, &pair.pinned_b)));
      pair.simulation.at(pair.simulation.now() + 100 * kMicrosecond,
                         [fills] { fills->port.script().tx_ring = 128; });
      pair.run();
      EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::success});
      EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, kPackets * 1024)) << taken;
      EXPECT_EQ(pair.counters_a().retransmitted_packets, 0U) << taken;
      EXPECT_TRUE(fills->port.fault.empty()) << fills->port.fault;
    }
  }
}

// A READ response longer than requested, at each of its packets.
TEST(Cve202623242, AReadResponseLongerThanAskedForWritesNothingBeyond) {
  constexpr uint32_t kBytes = 3 * 1024 + 100;
  constexpr uint32_t kPackets = 4;
  for (uint32_t wrong = 0; wrong < kPackets; ++wrong) {
    const bool is_last = wrong + 1 == kPackets;
    // Wrong last packet: a whole MTU, or a middle packet in its place. Wrong earlier packet: a premature last
    // packet, or a short payload.
    for (const bool ends : {true, false}) {
      SimulationScript script = quiet_fabric();
      script.b_to_a.drop_mask = ~uint64_t{0};  // loses the correct response
      Pair pair(script);
      const std::vector<uint8_t> before = pair.pinned_a.bytes;
      pair.read(kBytes);
      const auto give = [&](uint32_t number, wire::Opcode opcode, uint32_t bytes) {
        wire::PacketFields fields;
        fields.bth.opcode = opcode;
        fields.bth.psn = wire::Psn(100 + number);
        fields.aeth = {wire::kAethAck | wire::kAethCreditsInvalid, 1};
        pair.forge(pair.simulation.b, pair.a.qpn(), fields, bytes);
      };
      pair.simulation.at(pair.simulation.now() + 20 * kMicrosecond, [&] {
        for (uint32_t number = 0; number < wrong; ++number)
          give(number,
               number == 0 ? wire::Opcode::rc_read_response_first : wire::Opcode::rc_read_response_middle,
               1024);
        if (ends)
          give(wrong, wire::Opcode::rc_read_response_last, 1024);
        else if (is_last)
          give(wrong, wire::Opcode::rc_read_response_middle, 1024);
        else
          give(wrong, wire::Opcode::rc_read_response_only, 4096);
      });
      pair.run();
      EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::bad_response})
          << wrong << ends;
      EXPECT_EQ(pair.a.state(), QpState::err);
      // Only requested bytes have changed, and only from packets before the wrong one.
      const auto first_untouched = static_cast<std::ptrdiff_t>(size_t{wrong} * 1024);
      EXPECT_TRUE(std::equal(before.begin() + first_untouched, before.end(),
                             pair.pinned_a.bytes.begin() + first_untouched))
          << wrong << ends;
    }
  }
}

// A host restarts with the same QPN while its peer still sends on the old connection. If a READ of the old
// connection were answered as a duplicate, the peer would conclude that the WRITE before it had been
// executed.
TEST(ReturnedPeer, ARequestOfTheOldLifeIsNotAnswered) {
  Pair pair;
  pair.write(100);
  pair.run();
  const std::vector<uint8_t> before = pair.pinned_b.bytes;
  const size_t lines = pair.lines().size();
  for (const uint32_t psn : {99U, 0U, 0xffffffU, 101U + (1U << 23)}) {
    for (const wire::Opcode opcode : {wire::Opcode::rc_read_request, wire::Opcode::rc_write_only}) {
      wire::PacketFields fields;
      fields.bth.opcode = opcode;
      fields.bth.psn = wire::Psn(psn);
      fields.reth = {pair.pinned_b.base, pair.pinned_b.key, 64};
      pair.forge(pair.simulation.a, pair.b.qpn(), fields, opcode == wire::Opcode::rc_write_only ? 64 : 0);
      pair.run();
    }
  }
  EXPECT_EQ(pair.lines().size(), lines + 8) << "only what was forged";
  EXPECT_EQ(pair.counters_b().drops[static_cast<size_t>(transport::DropReason::stale_request)], 8U);
  EXPECT_EQ(pair.pinned_b.bytes, before);
  pair.read(100);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()),
            (Statuses{CompletionStatus::success, CompletionStatus::success}));
}

// An rkey violation raised no asynchronous event.
TEST(RxeRkeyEvent, AViolationIsAnEventAtTheResponder) {
  for (const SendOpcode opcode : {SendOpcode::rdma_write, SendOpcode::rdma_read}) {
    Pair pair;
    SendRequest request = pair.request(opcode, pair.pinned_a, 100, &pair.pinned_b);
    request.rkey ^= 0x100;
    ASSERT_TRUE(pair.a.post_send(request));
    pair.run();
    ASSERT_EQ(pair.simulation.b.events.size(), 1U);
    EXPECT_EQ(pair.simulation.b.events[0].event, AsyncEvent::qp_access_error);
    EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses{CompletionStatus::remote_access});
  }
}

// "Packet damming" and "packet flooding" (ISPASS 2021): a fault that ends in a time-out; many QPs that fault
// on one page and flood the wire with retransmissions.
TEST(PagingPitfalls, ManyQpsThatWaitForOnePageNeitherTimeOutNorFloodTheWire) {
  constexpr size_t kQps = 32;
  for (const uint64_t service_us : {20, 1'000, 20'000}) {
    SimulationScript script = selective_fabric();
    script.b.memory.resolve_min_ns = script.b.memory.resolve_max_ns = service_us * kMicrosecond;
    Pair pair(script);
    std::vector<std::unique_ptr<Endpoint>> ends;
    for (size_t i = 0; i < 2 * kQps; ++i)
      ends.push_back(std::make_unique<Endpoint>(
          pair.simulation, i % 2 == 0 ? pair.simulation.a : pair.simulation.b, EndpointScript{}));
    for (size_t i = 0; i < kQps; ++i) {
      ConnectionScript connection;
      connection.min_rnr_timer = 1;
      ASSERT_TRUE(connect(pair.simulation, *ends[2 * i], *ends[2 * i + 1], connection));
    }
    pair.simulation.run();
    for (size_t i = 0; i < kQps; ++i) {
      SendRequest request = pair.request(SendOpcode::rdma_write, pair.pinned_a, 100, &pair.paged_b);
      request.remote_va += 100 * i;  // all on the same page
      ASSERT_TRUE(ends[2 * i]->post_send(request));
    }
    pair.run();
    for (size_t i = 0; i < kQps; ++i)
      EXPECT_EQ(Pair::statuses(ends[2 * i]->poll_sends()), Statuses{CompletionStatus::success});
    EXPECT_EQ(pair.counters_a().timeouts, 0U) << service_us;
    // One retransmission for each park deadline (2 ms) and RNR wait during the fault, and a final one.
    EXPECT_LE(pair.counters_a().retransmitted_packets, kQps * (2 + service_us / 2'000)) << service_us;
    for (const auto& end : ends) end->destroy();
  }
}

}  // namespace
}  // namespace faultline::sim::threats_test
