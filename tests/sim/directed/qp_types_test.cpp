// SPDX-License-Identifier: BSD-3-Clause
// UC, shared receive queues, XRC and multicast: their differences from RC and UD.
#include <algorithm>

#include "stack/transport/qp/queue_pair.hpp"
#include "stack/transport/qp/shared_receive_queue.hpp"
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::qp_types_test {
namespace {

using transport::AsyncEvent;
using transport::CompletionOpcode;
using transport::CompletionStatus;
using transport::QpState;
using transport::QpType;
using transport::SendOpcode;

constexpr uint64_t bit(unsigned packet) {
  return uint64_t{1} << packet;
}

bool post_shared(transport::SharedReceiveQueue* srq, uint64_t wr_id, const transport::Sge& sge) {
  transport::ReceiveRing& ring = *srq->ring;
  transport::ReceiveWqe* wqe = ring.prepare();
  if (wqe == nullptr) return false;
  *wqe = {.wr_id = wr_id, .sge_count = 1, .length_bytes = sge.length_bytes};
  *ring.sges_of(wqe) = sge;
  ring.advance();
  ring.publish();
  return true;
}

// ---- UC ----

struct Unreliable : Pair {
  explicit Unreliable(const SimulationScript& script = quiet_fabric())
      : Pair(script),
        from(simulation, simulation.a, {.type = QpType::uc}),
        to(simulation, simulation.b, {.type = QpType::uc}) {
    EXPECT_TRUE(connect(simulation, from, to, {}));
    simulation.run();
  }
  void receive(uint32_t length) { EXPECT_TRUE(to.post_receive(next_wr_id++, {sge(pinned_b, length)})); }
  void send(SendOpcode opcode, uint32_t length) {
    SendRequest sent = request(opcode, pinned_a, length, &pinned_b);
    sent.immediate = 77;
    EXPECT_TRUE(from.post_send(sent));
  }
  Endpoint from, to;
};

TEST(Unreliable, SendsAndWritesWithoutAnAcknowledgement) {
  Unreliable pair;
  pair.receive(5000);
  pair.receive(5000);
  pair.send(SendOpcode::send_with_imm, 3000);
  pair.send(SendOpcode::rdma_write, 5000);
  pair.send(SendOpcode::rdma_write_with_imm, 100);
  pair.run();
  EXPECT_EQ(pair.from.poll_sends().size(), 3U);
  const auto received = pair.to.poll_receives();
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[0].byte_length, 3000U);
  EXPECT_EQ(received[0].immediate_or_rkey, 77U);
  EXPECT_EQ(received[1].opcode, CompletionOpcode::recv_rdma_with_imm);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 5000));
  for (const std::string& line : pair.lines()) EXPECT_EQ(line.substr(0, 2), "a>");
}

// Sends a message of three packets between two others and loses each packet in turn. That message is missing,
// the others are complete, and its receive serves the next message.
TEST(Unreliable, AMessageThatLosesAPacketIsGoneAndTheNextIsWhole) {
  for (unsigned lost = 0; lost < 3; ++lost) {
    SimulationScript script = quiet_fabric();
    script.a_to_b.drop_mask = bit(lost + 1);
    Unreliable pair(script);
    for (int i = 0; i < 3; ++i) pair.receive(3000);
    pair.send(SendOpcode::send, 10);
    pair.send(SendOpcode::send, 3000);
    pair.send(SendOpcode::send, 20);
    pair.run();
    EXPECT_EQ(pair.from.poll_sends().size(), 3U);
    const auto received = pair.to.poll_receives();
    ASSERT_EQ(received.size(), 2U) << lost;
    EXPECT_EQ(received[0].byte_length, 10U);
    EXPECT_EQ(received[1].byte_length, 20U);
    EXPECT_EQ(received[1].wr_id, received[0].wr_id + 1);
  }
}

TEST(Unreliable, WithoutAReceiveOrARightAMessageIsDroppedAndTheQpLives) {
  Unreliable pair;
  pair.send(SendOpcode::send, 2000);
  SendRequest bad = pair.request(SendOpcode::rdma_write, pair.pinned_a, 2000, &pair.pinned_b);
  bad.rkey ^= 1;
  EXPECT_TRUE(pair.from.post_send(bad));
  pair.run();
  pair.receive(100);
  pair.send(SendOpcode::send, 100);
  pair.run();
  EXPECT_EQ(pair.to.state(), QpState::rts);
  EXPECT_EQ(pair.to.poll_receives().size(), 1U);
}

TEST(Unreliable, ALocalFailureStopsTheSendQueueAlone) {
  Unreliable pair;
  SendRequest bad = pair.request(SendOpcode::send, pair.pinned_a, 100);
  bad.sges[0].lkey ^= 1;
  EXPECT_TRUE(pair.from.post_send(bad));
  pair.send(SendOpcode::send, 100);
  pair.run();
  EXPECT_EQ(pair.from.state(), QpState::sqe);
  EXPECT_EQ(Pair::statuses(pair.from.poll_sends()),
            (Statuses{CompletionStatus::local_protection, CompletionStatus::work_request_flushed}));
}

TEST(Unreliable, APageThatIsNotThereIsWaitedFor) {
  Unreliable pair;
  EXPECT_TRUE(pair.from.post_send(pair.request(SendOpcode::rdma_write, pair.paged_a, 5000, &pair.paged_b)));
  pair.run();
  EXPECT_TRUE(Pair::same(pair.paged_a, pair.paged_b, 5000));
  EXPECT_EQ(pair.counters_b().messages_received, 1U);
}

// The fault lasts longer than an RC responder would park packets before it sends an RNR NAK.
TEST(Unreliable, APageThatComesLateIsWaitedForToo) {
  SimulationScript script = quiet_fabric();
  script.b.memory.resolve_min_ns = script.b.memory.resolve_max_ns = 50 * kMillisecond;
  Unreliable pair(script);
  EXPECT_TRUE(pair.from.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_a, 3000, &pair.paged_b)));
  pair.run();
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 3000));
  EXPECT_EQ(pair.counters_b().messages_received, 1U);
}

// UC has no RNR NAK that could delay the sender: the message is dropped, and the next one is complete.
TEST(Unreliable, AMessageWhosePageComesTooLateIsDropped) {
  SimulationScript script = quiet_fabric();
  script.b.core.unreliable_deadline_ns = 2 * kMillisecond;
  script.b.memory.resolve_min_ns = script.b.memory.resolve_max_ns = 50 * kMillisecond;
  Unreliable pair(script);
  const std::vector<uint8_t> before = pair.paged_b.bytes;
  EXPECT_TRUE(pair.from.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_a, 3000, &pair.paged_b)));
  pair.simulation.at(pair.simulation.now() + 20 * kMillisecond,
                     [&] { pair.send(SendOpcode::rdma_write, 3000); });
  pair.run();
  EXPECT_EQ(pair.paged_b.bytes, before);
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 3000));
  EXPECT_EQ(pair.counters_b().messages_received, 1U);
  EXPECT_EQ(pair.counters_b().rnr_naks_sent, 0U);
  EXPECT_EQ(pair.to.state(), QpState::rts);
  EXPECT_EQ(pair.simulation.b.port.rx_in_use(), 0U);
}

// ---- shared receive queues ----

struct Shared : Pair {
  explicit Shared(uint32_t limit = 0, uint32_t max_wr = 8) : Pair(quiet_fabric()) {
    srq = simulation.b.core().create_srq({.domain = 1, .max_wr = max_wr, .max_sge = 2, .limit = limit});
    for (int i = 0; i < 2; ++i) {
      from[i] = std::make_unique<Endpoint>(simulation, simulation.a, EndpointScript{});
      to[i] = std::make_unique<Endpoint>(simulation, simulation.b, EndpointScript{.srq = srq});
      EXPECT_TRUE(connect(simulation, *from[i], *to[i], {}));
    }
    simulation.run();
  }
  ~Shared() {
    for (auto& end : to) end->destroy();
    simulation.b.core().destroy_srq(srq);
  }
  void post(uint32_t length) {
    EXPECT_TRUE(post_shared(srq, next_wr_id++, sge(pinned_b, length, 4096 * posted++)));
  }
  void send_from(int which, uint32_t length) {
    EXPECT_TRUE(from[which]->post_send(request(SendOpcode::send, pinned_a, length)));
  }
  transport::SharedReceiveQueue* srq;
  std::unique_ptr<Endpoint> from[2], to[2];
  uint32_t posted = 0;
};

TEST(SharedReceives, MessagesOfTwoQpsAtOnceTakeOneEach) {
  Shared pair;
  for (int i = 0; i < 4; ++i) pair.post(4096);
  for (int i = 0; i < 2; ++i) {
    pair.send_from(0, 4000);
    pair.send_from(1, 3000);
  }
  pair.run();
  std::vector<uint64_t> used;
  for (const auto& end : pair.to)
    for (const auto& completion : end->poll_receives()) {
      EXPECT_EQ(completion.status, CompletionStatus::success);
      EXPECT_EQ(completion.qpn, end->qpn());
      used.push_back(completion.wr_id);
    }
  std::sort(used.begin(), used.end());
  EXPECT_EQ(used.size(), 4U);
  EXPECT_TRUE(std::adjacent_find(used.begin(), used.end()) == used.end());
}

TEST(SharedReceives, EmptyIsNotReadyAndARefillIsEnough) {
  Shared pair;
  pair.send_from(0, 100);
  pair.simulation.at(pair.simulation.now() + kMillisecond, [&] { pair.post(4096); });
  pair.run();
  EXPECT_GE(pair.counters_b().rnr_naks_sent, 1U);
  EXPECT_EQ(pair.to[0]->poll_receives().size(), 1U);
}

TEST(SharedReceives, TheLimitIsToldOnceWhenItIsCrossed) {
  Shared pair(2);
  for (int i = 0; i < 4; ++i) pair.post(4096);
  for (int i = 0; i < 4; ++i) pair.send_from(i % 2, 10);
  pair.run();
  EXPECT_EQ(pair.simulation.b.srq_events, 1U);
  EXPECT_EQ(pair.srq->limit, 0U);
}

TEST(SharedReceives, AQpThatFailsFlushesWhatItTookAndSaysThatItWasTheLast) {
  Shared pair;
  pair.post(4096);
  pair.post(4096);
  pair.send_from(0, 4000);
  // In the middle of the message.
  pair.simulation.at(pair.simulation.now() + 1 * kMicrosecond + 500, [&] {
    if (pair.to[0]->qp()->receive_taken) {
      transport::QpAttributes attributes;
      attributes.state = QpState::err;
      EXPECT_EQ(pair.to[0]->modify(attributes, transport::kAttrState), 0);
    }
  });
  pair.simulation.at(pair.simulation.now() + 2 * kMillisecond, [&] {
    transport::QpAttributes attributes;
    attributes.state = QpState::err;
    EXPECT_EQ(pair.to[0]->modify(attributes, transport::kAttrState), 0);
  });
  pair.run();
  uint32_t last_wqe = 0;
  for (const RaisedEvent& event : pair.simulation.b.events)
    last_wqe += event.event == AsyncEvent::last_wqe_reached;
  EXPECT_EQ(last_wqe, 1U);
  EXPECT_EQ(pair.to[0]->poll_receives().size(), 1U);
  EXPECT_EQ(transport::posted_in(pair.srq), 1U);
  pair.send_from(1, 10);
  pair.run();
  EXPECT_EQ(pair.to[1]->poll_receives().size(), 1U);
}

TEST(SharedReceives, AResizeKeepsWhatIsPosted) {
  Shared pair;
  for (int i = 0; i < 6; ++i) pair.post(4096);
  EXPECT_EQ(pair.simulation.b.core().modify_srq(pair.srq, nullptr, 4), EINVAL);
  EXPECT_EQ(pair.simulation.b.core().modify_srq(pair.srq, nullptr, 16), 0);
  for (int i = 0; i < 8; ++i) pair.post(4096);
  for (int i = 0; i < 14; ++i) pair.send_from(0, 10);
  pair.run();
  const auto received = pair.to[0]->poll_receives();
  ASSERT_EQ(received.size(), 14U);
  EXPECT_TRUE(std::is_sorted(received.begin(), received.end(),
                             [](const auto& a, const auto& b) { return a.wr_id < b.wr_id; }));
}

// Two datagrams for two QPs. The first waits for the page of its receive; the second takes the next receive.
TEST(SharedReceives, AReceiveThatIsWaitedForIsNobodyElses) {
  Pair pair;
  constexpr uint32_t kQkey = 0x111;
  auto* const srq = pair.simulation.b.core().create_srq({.domain = 1, .max_wr = 4, .max_sge = 1});
  Endpoint sender(pair.simulation, pair.simulation.a, {.type = QpType::ud});
  ASSERT_TRUE(activate_datagram(sender, kQkey, 1));
  Endpoint first(pair.simulation, pair.simulation.b, {.type = QpType::ud, .srq = srq});
  Endpoint second(pair.simulation, pair.simulation.b, {.type = QpType::ud, .srq = srq});
  EXPECT_TRUE(post_shared(srq, 1, Pair::sge(pair.paged_b, 4096)));
  EXPECT_TRUE(post_shared(srq, 2, Pair::sge(pair.pinned_b, 4096)));
  for (Endpoint* end : {&first, &second}) {
    ASSERT_TRUE(activate_datagram(*end, kQkey, 1));
    SendRequest sent = pair.request(SendOpcode::send, pair.pinned_a, 500);
    sent.ud_qpn = end->qpn();
    sent.ud_qkey = kQkey;
    sent.av = pair.simulation.path(pair.simulation.a, pair.simulation.b);
    EXPECT_TRUE(sender.post_send(sent));
  }
  pair.run();
  const auto waited = first.poll_receives();
  const auto straight = second.poll_receives();
  ASSERT_EQ(waited.size(), 1U);
  ASSERT_EQ(straight.size(), 1U);
  EXPECT_EQ(waited[0].wr_id, 1U);
  EXPECT_EQ(straight[0].wr_id, 2U);
}

// ---- XRC ----

struct Xrc : Pair {
  explicit Xrc(const SimulationScript& script = quiet_fabric()) : Pair(script), cq(64) {
    for (auto& srq : srqs)
      srq = simulation.b.core().create_srq(
          {.domain = 1, .max_wr = 8, .max_sge = 1, .cq = &cq, .xrc_domain = 9});
    other =
        simulation.b.core().create_srq({.domain = 1, .max_wr = 8, .max_sge = 1, .cq = &cq, .xrc_domain = 10});
    initiator =
        std::make_unique<Endpoint>(simulation, simulation.a, EndpointScript{.type = QpType::xrc_send});
    target = std::make_unique<Endpoint>(
        simulation, simulation.b, EndpointScript{.type = QpType::xrc_recv, .domain = 0, .xrc_domain = 9});
    EXPECT_TRUE(connect(simulation, *initiator, *target, {}));
    simulation.run();
  }
  void send_to(transport::SharedReceiveQueue* srq, SendOpcode opcode, uint32_t length) {
    SendRequest sent = request(opcode, pinned_a, length, &pinned_b);
    sent.fill = [srq](transport::SendWqe& wqe) { wqe.srq_number = srq->number; };
    EXPECT_TRUE(initiator->post_send(sent));
  }
  transport::CompletionQueue cq;
  transport::SharedReceiveQueue* srqs[2];
  transport::SharedReceiveQueue* other;
  std::unique_ptr<Endpoint> initiator, target;
};

TEST(Xrc, OneConnectionServesManyQueues) {
  Xrc pair;
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(post_shared(pair.srqs[i], 100 + i, Pair::sge(pair.pinned_b, 4096, 4096 * i)));
  pair.send_to(pair.srqs[1], SendOpcode::send, 3000);
  pair.send_to(pair.srqs[0], SendOpcode::send, 10);
  pair.send_to(pair.srqs[0], SendOpcode::rdma_write, 3000);
  pair.send_to(pair.srqs[0], SendOpcode::rdma_read, 3000);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.initiator->poll_sends()), Statuses(4, CompletionStatus::success))
      << pair.simulation.trace.text(40);
  const auto received = Endpoint::drain(pair.cq);
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[0].wr_id, 101U);
  EXPECT_EQ(received[0].byte_length, 3000U);
  EXPECT_EQ(received[1].wr_id, 100U);
}

TEST(Xrc, RecoversFromLossAsRcDoes) {
  for (const bool selective : {false, true}) {
    for (unsigned lost = 0; lost < 8; ++lost) {
      SimulationScript script = selective ? selective_fabric() : quiet_fabric();
      (lost % 2 == 0 ? script.a_to_b : script.b_to_a).drop_mask = bit(lost / 2);
      Xrc pair(script);
      for (int i = 0; i < 2; ++i)
        EXPECT_TRUE(post_shared(pair.srqs[i], 100 + i, Pair::sge(pair.pinned_b, 4096, 4096 * i)));
      pair.send_to(pair.srqs[1], SendOpcode::send, 3000);
      pair.send_to(pair.srqs[0], SendOpcode::send, 3000);
      pair.run();
      EXPECT_EQ(pair.initiator->poll_sends().size(), 2U) << lost;
      EXPECT_EQ(Endpoint::drain(pair.cq).size(), 2U);
    }
  }
}

TEST(Xrc, AQueueOfAnotherDomainIsAnInvalidRequest) {
  Xrc pair;
  pair.send_to(pair.other, SendOpcode::send, 10);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.initiator->poll_sends()),
            (Statuses{CompletionStatus::remote_invalid_request}));
}

// XRC targets hold no reference to the SRQ. If the SRQ is destroyed in the middle of a message, that message
// is lost. An SRQ created in its place receives no part of the message.
TEST(Xrc, AQueueThatGoesUnderAMessageEndsTheMessage) {
  for (const bool follows : {false, true}) {
    SimulationScript script = quiet_fabric();
    script.a_to_b.picoseconds_per_byte = 1'000'000;  // 1 ms per packet
    Xrc pair(script);
    EXPECT_TRUE(post_shared(pair.srqs[1], 100, Pair::sge(pair.pinned_b, 4096)));
    pair.send_to(pair.srqs[1], SendOpcode::send, 4000);
    EXPECT_TRUE(pair.simulation.run_until([&] { return pair.target->qp()->receive_taken; },
                                          pair.simulation.now() + 100 * kMillisecond));
    ASSERT_TRUE(pair.target->qp()->receive_taken);
    const uint32_t number = pair.srqs[1]->number;
    pair.simulation.b.core().destroy_srq(pair.srqs[1]);
    EXPECT_FALSE(pair.target->qp()->receive_taken);
    if (follows) {
      auto* const next = pair.simulation.b.core().create_srq(
          {.domain = 1, .max_wr = 8, .max_sge = 1, .cq = &pair.cq, .xrc_domain = 9});
      ASSERT_EQ(next->number, number);
      EXPECT_TRUE(post_shared(next, 200, Pair::sge(pair.pinned_b, 4096)));
    }
    pair.run();
    EXPECT_EQ(Pair::statuses(pair.initiator->poll_sends()),
              (Statuses{CompletionStatus::remote_invalid_request}));
    EXPECT_TRUE(Endpoint::drain(pair.cq).empty());
  }
}

// ---- multicast ----

// The member that waits for a page keeps the packet; the other members have received theirs.
TEST(Multicast, APacketWaitsForAPageAndIsDelivered) {
  SimulationScript script = quiet_fabric();
  script.b.memory.resolve_min_ns = script.b.memory.resolve_max_ns = 50 * kMillisecond;
  Pair pair(script);
  constexpr uint32_t kQkey = 0x111;
  Endpoint sender(pair.simulation, pair.simulation.a, {.type = QpType::ud});
  ASSERT_TRUE(activate_datagram(sender, kQkey, 1));
  const wire::Gid group = wire::Gid::from_ipv4(0xe0000105);
  Endpoint pinned(pair.simulation, pair.simulation.b, {.type = QpType::ud});
  Endpoint paged(pair.simulation, pair.simulation.b, {.type = QpType::ud});
  for (Endpoint* end : {&paged, &pinned}) {
    ASSERT_TRUE(activate_datagram(*end, kQkey, 1));
    ASSERT_TRUE(end->post_receive(1, {Pair::sge(end == &paged ? pair.paged_b : pair.pinned_b, 2000)}));
    ASSERT_EQ(pair.simulation.b.core().attach_multicast(end->qp(), group), 0);
  }
  SendRequest sent = pair.request(SendOpcode::send, pair.pinned_a, 500);
  sent.ud_qpn = wire::kMulticastQpn;
  sent.ud_qkey = kQkey;
  sent.av = pair.simulation.path(pair.simulation.a, pair.simulation.b);
  sent.av.path.destination_gid = group;
  EXPECT_TRUE(sender.post_send(sent));
  pair.run();
  EXPECT_EQ(paged.poll_receives().size(), 1U);
  EXPECT_EQ(pinned.poll_receives().size(), 1U);
  EXPECT_EQ(pair.counters_b().packets_parked, 1U);
  EXPECT_TRUE(std::equal(pair.pinned_a.bytes.begin(), pair.pinned_a.bytes.begin() + 500,
                         pair.paged_b.bytes.begin() + wire::kGrhBytes));
  EXPECT_EQ(pair.simulation.b.port.rx_in_use(), 0U);
}

TEST(Multicast, EveryMemberGetsACopyAndNobodyElse) {
  Pair pair;
  constexpr uint32_t kQkey = 0x111;
  Endpoint sender(pair.simulation, pair.simulation.a, {.type = QpType::ud});
  ASSERT_TRUE(activate_datagram(sender, kQkey, 1));
  std::vector<std::unique_ptr<Endpoint>> receivers;
  wire::Gid group = wire::Gid::from_ipv4(0xe0000105);
  for (int i = 0; i < 4; ++i) {
    receivers.push_back(
        std::make_unique<Endpoint>(pair.simulation, pair.simulation.b, EndpointScript{.type = QpType::ud}));
    ASSERT_TRUE(activate_datagram(*receivers.back(), i == 3 ? kQkey + 1 : kQkey, 1));
    for (int n = 0; n < 3; ++n)
      ASSERT_TRUE(receivers.back()->post_receive(static_cast<uint64_t>(n),
                                                 {Pair::sge(pair.pinned_b, 2000, 8192U * i)}));
    if (i == 2) continue;
    ASSERT_EQ(pair.simulation.b.core().attach_multicast(receivers.back()->qp(), group), 0);
  }
  EXPECT_EQ(pair.simulation.b.core().attach_multicast(pair.b.qp(), group), EINVAL) << "not a UD QP";
  EXPECT_EQ(pair.simulation.b.core().attach_multicast(receivers[0]->qp(), wire::Gid::from_ipv4(0xc6120002)),
            EINVAL);
  const auto post = [&] {
    SendRequest sent = pair.request(SendOpcode::send, pair.pinned_a, 500);
    sent.ud_qpn = wire::kMulticastQpn;
    sent.ud_qkey = kQkey;
    sent.av = pair.simulation.path(pair.simulation.a, pair.simulation.b);
    sent.av.path.destination_gid = group;
    EXPECT_TRUE(sender.post_send(sent));
    pair.run();
  };
  post();
  EXPECT_EQ(receivers[0]->poll_receives().size(), 1U);
  EXPECT_EQ(receivers[1]->poll_receives().size(), 1U);
  EXPECT_EQ(receivers[2]->poll_receives().size(), 0U) << "not a member";
  EXPECT_EQ(receivers[3]->poll_receives().size(), 0U) << "another Q_Key";
  EXPECT_EQ(pair.simulation.b.core().detach_multicast(receivers[0]->qp(), group), 0);
  EXPECT_EQ(pair.simulation.b.core().detach_multicast(receivers[0]->qp(), group), EINVAL);
  receivers[3]->destroy();
  post();
  EXPECT_EQ(receivers[0]->poll_receives().size(), 0U);
  EXPECT_EQ(receivers[1]->poll_receives().size(), 1U);
  group.bytes[15] ^= 1;
  post();
  EXPECT_EQ(pair.counters_b().drops[static_cast<size_t>(transport::DropReason::multicast_group)], 1U);
}

// Packets of a multicast group carry QPN 0xffffff (IBA 10.5.2): any other QPN at a group's address is
// dropped.
TEST(Multicast, AQpsOwnNumberIsNotAnsweredAtAGroupsAddress) {
  Pair pair;
  constexpr uint32_t kQkey = 0x111;
  const wire::Gid group = wire::Gid::from_ipv4(0xe0000105);
  Endpoint member(pair.simulation, pair.simulation.b, {.type = QpType::ud});
  Endpoint other(pair.simulation, pair.simulation.b, {.type = QpType::ud});
  for (Endpoint* end : {&member, &other}) {
    ASSERT_TRUE(activate_datagram(*end, kQkey, 1));
    ASSERT_TRUE(end->post_receive(1, {Pair::sge(pair.pinned_b, 2000)}));
  }
  ASSERT_EQ(pair.simulation.b.core().attach_multicast(member.qp(), group), 0);
  wire::PacketFields fields;
  fields.bth.opcode = wire::Opcode::ud_send_only;
  fields.deth = {kQkey, 5};
  for (Endpoint* end : {&member, &other}) pair.forge_to(pair.simulation.a, group, end->qpn(), fields, 64);
  pair.run();
  EXPECT_TRUE(member.poll_receives().empty());
  EXPECT_TRUE(other.poll_receives().empty());
  EXPECT_EQ(pair.counters_b().drops[static_cast<size_t>(transport::DropReason::destination_address)], 2U);
}

// ---- SQD ----

TEST(Drain, TheEventComesWhenWhatHadBegunIsDoneAndTheRestWaits) {
  Pair pair;
  for (int i = 0; i < 8; ++i) pair.write(60000);
  transport::QpAttributes attributes;
  pair.simulation.at(pair.simulation.now() + 500, [&] {
    attributes.state = QpState::sqd;
    attributes.sqd_notify = true;
    EXPECT_EQ(pair.a.modify(attributes, transport::kAttrState | transport::kAttrEnSqdAsyncNotify), 0);
  });
  pair.run();
  ASSERT_EQ(pair.simulation.a.events.size(), 1U);
  EXPECT_EQ(pair.simulation.a.events[0].event, AsyncEvent::sq_drained);
  const size_t before = pair.a.poll_sends().size();
  EXPECT_LT(before, 8U);
  attributes.state = QpState::rts;
  EXPECT_EQ(pair.a.modify(attributes, transport::kAttrState), 0);
  pair.run();
  EXPECT_EQ(before + pair.a.poll_sends().size(), 8U);
}

TEST(Drain, ANotificationIsOfTheDrainThatAskedForIt) {
  Pair pair;
  pair.write(60'000);
  transport::QpAttributes attributes;
  bool over = false;
  pair.simulation.at(pair.simulation.now() + 500, [&] {
    attributes.state = QpState::sqd;
    attributes.sqd_notify = true;
    EXPECT_EQ(pair.a.modify(attributes, transport::kAttrState | transport::kAttrEnSqdAsyncNotify), 0);
    attributes.state = QpState::rts;
    EXPECT_EQ(pair.a.modify(attributes, transport::kAttrState), 0);
    attributes.state = QpState::sqd;
    EXPECT_EQ(pair.a.modify(attributes, transport::kAttrState), 0);
    over = true;
  });
  pair.run();
  EXPECT_TRUE(over);
  EXPECT_EQ(pair.a.poll_sends().size(), 1U);
  EXPECT_TRUE(pair.simulation.a.events.empty());
}

// The responder keeps working in SQD. A response that waits for a page survives a change of the resources,
// and a count below those in use is refused.
TEST(Drain, AnswersUnderWaySurviveAChangeOfTheResources) {
  Pair pair;
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(pair.a.post_send(pair.request(SendOpcode::rdma_read, pair.pinned_a, 5000, &pair.paged_b)));
  EXPECT_TRUE(pair.simulation.run_until([&] { return pair.b.qp()->responder.job_count == 2; },
                                        pair.simulation.now() + kMillisecond));
  ASSERT_EQ(pair.b.qp()->responder.job_count, 2U);
  transport::QpAttributes attributes;
  attributes.state = QpState::sqd;
  EXPECT_EQ(pair.b.modify(attributes, transport::kAttrState), 0);
  attributes.max_dest_rd_atomic = 1;
  EXPECT_EQ(pair.b.modify(attributes, transport::kAttrState | transport::kAttrMaxDestRdAtomic), EBUSY);
  attributes.max_dest_rd_atomic = 3;
  EXPECT_EQ(pair.b.modify(attributes, transport::kAttrState | transport::kAttrMaxDestRdAtomic), 0);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), Statuses(2, CompletionStatus::success));
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.paged_b, 5000));
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
}

}  // namespace
}  // namespace faultline::sim::qp_types_test
