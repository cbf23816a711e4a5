// SPDX-License-Identifier: BSD-3-Clause
// What a scenario does to the packets of an engine: the exact packets, times and completions.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "pmd_glue/trouble/scenario_file.hpp"
#include "stack/base/clock.hpp"
#include "stack/trouble/director.hpp"
#include "stack/wire/mad/mad.hpp"
#include "tests/unit/engine/frames.hpp"

namespace faultline::glue::test::trouble_test {
namespace {

using transport::CompletionStatus;

/// A tick of the timer wheel; a deadline is met within it.
constexpr TimeNs kTickNs = 8'192;
constexpr uint32_t kMtuBytes = 1024;

/// Two stations with a connected QP each; the first has the trouble.
struct Troubled {
  explicit Troubled(const std::string& toml)
      : director(parse_scenario(toml, "test.toml"), monotonic_ns,
                 [this](const std::string& line) { journal.push_back(line); }) {
    trouble::set_director(&director);
    a = std::make_unique<Station>("198.18.0.1/24");
    trouble::set_director(nullptr);
    b = std::make_unique<Station>("198.18.0.2/24");
    qp_a.emplace(*a);
    qp_b.emplace(*b);
    static_cast<void>(director.object(trouble::ObjectKind::qp, director.device("station"), qp_a->qpn()));
    qp_a->connect(*qp_b, *b);
    qp_b->connect(*qp_a, *a);
    std::iota(a->memory.bytes.begin(), a->memory.bytes.end(), uint8_t{1});
    std::iota(b->memory.bytes.begin(), b->memory.bytes.end(), uint8_t{7});
  }

  /// PSNs of the frames that the first station has transmitted since the last call.
  std::vector<uint32_t> sent_psns() const {
    std::vector<uint32_t> psns;
    for (const Frame& frame : a->port.take_sent()) psns.push_back(packet_of(frame).bth.psn.value());
    return psns;
  }
  /// Sends so many messages of one byte.
  void write(unsigned messages) {
    for (unsigned i = 0; i < messages; ++i) qp_a->write(1);
  }

  std::vector<std::string> journal;
  trouble::Director director;
  std::unique_ptr<Station> a;
  std::unique_ptr<Station> b;
  std::optional<TestQp> qp_a;
  std::optional<TestQp> qp_b;
};

std::string rule(const std::string& when, const std::string& action, const std::string& rest = "") {
  return "illegal = true\n[[rule]]\nwhen = { " + when + " }\ndo = { " + action + " }\n" + rest;
}

class Trouble : public WithFrames {
 protected:
  void TearDown() override { trouble::set_director(nullptr); }
};

struct Order {
  const char* action;
  const char* rest;
  const char* when;
  std::vector<uint32_t> psns;  ///< of six packets
};

TEST_F(Trouble, ReorderedPacketsPassBehindSoManyOthers) {
  const Order orders[] = {
      {R"(packet = "reorder", by = 1)", "", R"(packet = "out RC.*", nth = 2)", {0, 2, 1, 3, 4, 5}},
      {R"(packet = "reorder", by = 2)", "", R"(packet = "out RC.*", nth = 1)", {1, 2, 0, 3, 4, 5}},
      {R"(packet = "reorder", by = 3)", "", R"(packet = "out RC.*", nth = 3)", {0, 1, 3, 4, 5, 2}},
      // Those that are set aside pass no one.
      {R"(packet = "reorder", by = 2)", "times = 2\n", R"(packet = "out RC.*")", {2, 3, 0, 1, 4, 5}},
      // It waits for packets, not for a time.
      {R"(packet = "reorder", by = 4)", "", R"(packet = "out RC.*", nth = 4)", {0, 1, 2, 4, 5}},
  };
  for (const Order& order : orders) {
    Troubled pair(rule(order.when, order.action, order.rest));
    pair.write(6);
    pair.a->turn();
    VirtualClock::advance(kMillisecond);
    pair.a->turn();
    EXPECT_EQ(pair.sent_psns(), order.psns) << order.action << order.when;
    EXPECT_FALSE(pair.a->engine.holds_frames_to_send());
  }
}

TEST_F(Trouble, APacketThatIsDelayedToALaterTimeIsBehindThoseThatPassedIt) {
  Troubled pair(
      rule(R"(packet = "out RC.*", nth = 1)", R"(packet = "reorder", by = 1)") +
      "[[rule]]\nwhen = { packet = \"out RC.*\", nth = 2 }\ndo = { packet = \"delay\", delay_us = 50 }\n");
  pair.write(2);
  pair.a->turn();
  EXPECT_EQ(pair.sent_psns(), std::vector<uint32_t>{});
  VirtualClock::advance(50 * kMicrosecond);
  pair.a->turn();
  EXPECT_EQ(pair.sent_psns(), (std::vector<uint32_t>{1, 0}));
}

TEST_F(Trouble, ARateSpacesPacketsByTheirLength) {
  // 1 Gb/s: 8 ns a byte.
  Troubled pair(rule(R"(packet = "out RC.*")", R"(packet = "rate", bits_per_second = 1000000000)"));
  pair.qp_a->write(4 * kMtuBytes);
  pair.a->turn();
  for (size_t number = 0; number < 4; ++number) {
    const std::vector<Frame> sent = pair.a->port.take_sent();
    ASSERT_EQ(sent.size(), 1U) << number;
    if (number == 3) break;
    const TimeNs takes_ns = 8 * sent[0].size();
    VirtualClock::advance(takes_ns - 1);
    pair.a->turn();
    ASSERT_TRUE(pair.a->port.take_sent().empty()) << number;
    VirtualClock::advance(1);
    pair.a->turn();
  }
  EXPECT_EQ(pair.journal.size(), 1U);
}

TEST_F(Trouble, APacketBeyondTheQueueOfARateIsLost) {
  Troubled pair(
      rule(R"(packet = "out RC.*")", R"(packet = "rate", bits_per_second = 1000000000, queue_bytes = 2500)"));
  pair.qp_a->write(4 * kMtuBytes);
  pair.a->turn();
  VirtualClock::advance(100 * kMicrosecond);
  pair.a->turn();
  EXPECT_EQ(pair.sent_psns(), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(pair.a->count(&PortCounts::chaos_lost), 2U);
}

TEST_F(Trouble, ASlowReceiverHandlesOnePacketAfterTheOther) {
  Troubled pair(rule(R"(packet = "in RC.*")", R"(packet = "slow", service_us = 10)"));
  pair.qp_b->write(3 * kMtuBytes);
  pair.b->turn();
  ASSERT_EQ(carry(*pair.b, *pair.a), 3U);
  pair.a->turn();
  for (uint64_t handled = 0; handled < 3; ++handled) {
    EXPECT_EQ(pair.a->transport().rx_packets, handled);
    VirtualClock::advance(10 * kMicrosecond - 1);
    pair.a->turn();
    EXPECT_EQ(pair.a->transport().rx_packets, handled);
    VirtualClock::advance(1);
    pair.a->turn();
  }
  EXPECT_EQ(pair.a->transport().rx_packets, 3U);
}

TEST_F(Trouble, APartitionLosesOneDirectionForItsTime) {
  Troubled pair(
      rule(R"(packet = "out *", peer = "198.18.0.2")", R"(packet = "partition", for_ms = 1, flow = "peer")"));
  pair.write(1);
  pair.a->turn();
  EXPECT_TRUE(pair.a->port.take_sent().empty());
  pair.qp_b->write(1);
  settle(*pair.a, *pair.b);
  EXPECT_EQ(pair.a->transport().messages_received, 1U) << "the other direction works";
  EXPECT_EQ(pair.qp_b->sent(), Statuses{}) << "but its acknowledgement is lost";
  VirtualClock::advance(TestQp::kTimeoutNs + kTickNs);
  settle(*pair.a, *pair.b);
  EXPECT_EQ(pair.qp_a->sent(), succeeded(1));
  EXPECT_EQ(pair.qp_b->sent(), succeeded(1));
  EXPECT_EQ(pair.journal.size(), 1U);
}

TEST_F(Trouble, ACorruptPacketWithARightIcrcChangesTheReceiversMemoryByOneBit) {
  Troubled pair(rule(R"(packet = "out RC.*")", R"(packet = "corrupt", icrc = "right")"));
  constexpr size_t kBytes = 77;
  pair.qp_a->write(kBytes);
  settle(*pair.a, *pair.b);
  EXPECT_EQ(pair.qp_a->sent(), succeeded(1));
  std::vector<uint8_t> expected(pair.a->memory.bytes.begin(), pair.a->memory.bytes.begin() + kBytes);
  expected.back() ^= 1;
  EXPECT_TRUE(std::ranges::equal(expected, std::span(pair.b->memory.bytes).first(kBytes)));
  EXPECT_EQ(pair.a->count(&PortCounts::chaos_corrupted), 1U);
}

TEST_F(Trouble, CnpsArriveFromTheQpsPeer) {
  for (const char* const when : {R"(packet = "out RC.WRITE*")", R"(packet = "in RC.ACK")"}) {
    Troubled pair(rule(when, R"(inject = "cnp", count = 70)"));
    pair.write(1);
    settle(*pair.a, *pair.b);
    EXPECT_EQ(pair.qp_a->sent(), succeeded(1)) << when;
    EXPECT_EQ(pair.a->transport().cnps_received, 70U) << when;
    EXPECT_EQ(pair.b->transport().cnps_sent, 0U);
  }
}

TEST_F(Trouble, AnRnrNakWaitsForTheAnswersBeforeItAndItsRequestComesAgain) {
  // The second of three messages. Timer 1: 10 us.
  Troubled pair(rule(R"(packet = "out RC.WRITE*", nth = 2)", R"(inject = "rnr", timer = 1)"));
  pair.write(3);
  pair.a->turn();
  EXPECT_TRUE(pair.a->turn()) << "another turn is worth while: an answer waits";
  EXPECT_EQ(pair.a->transport().rnr_naks_received, 0U);
  EXPECT_EQ(carry(*pair.a, *pair.b), 1U)
      << "the third is discarded, as by a responder that has refused the second";
  pair.b->turn();
  ASSERT_EQ(carry(*pair.b, *pair.a), 1U);
  pair.a->turn();
  pair.a->turn();
  EXPECT_EQ(pair.a->transport().rnr_naks_received, 1U);
  EXPECT_EQ(pair.qp_a->sent(), succeeded(1));
  EXPECT_TRUE(pair.a->port.take_sent().empty());
  VirtualClock::advance(10 * kMicrosecond + kTickNs);
  settle(*pair.a, *pair.b);
  EXPECT_EQ(pair.qp_a->sent(), succeeded(2));
  EXPECT_EQ(pair.b->transport().messages_received, 3U);
  EXPECT_EQ(pair.a->transport().timeouts, 0U);
  EXPECT_EQ(pair.journal.size(), 1U);
}

TEST_F(Trouble, ARefusedRepetitionOfAnAnsweredRequestHoldsNothingUp) {
  Troubled pair(rule(R"(packet = "out RC.WRITE*", nth = 2)", R"(inject = "rnr", timer = 1)"));
  pair.write(1);
  pair.a->turn();
  ASSERT_EQ(carry(*pair.a, *pair.b), 1U);
  pair.b->turn();
  const std::vector<Frame> late_answer = pair.b->port.take_sent();
  ASSERT_EQ(late_answer.size(), 1U);
  VirtualClock::advance(TestQp::kTimeoutNs + kTickNs);
  pair.a->turn();
  ASSERT_EQ(pair.journal.size(), 1U) << "the repetition is refused";
  ASSERT_TRUE(pair.a->port.take_sent().empty());
  pair.a->port.deliver(late_answer[0]);
  pair.a->turn();
  EXPECT_EQ(pair.qp_a->sent(), succeeded(1));
  pair.write(2);
  VirtualClock::advance(10 * kMicrosecond + kTickNs);
  settle(*pair.a, *pair.b);
  EXPECT_EQ(pair.qp_a->sent(), succeeded(2));
  EXPECT_EQ(pair.a->transport().timeouts, 1U);
}

struct Nak {
  const char* syndrome;
  CompletionStatus status;
  uint64_t sequence_naks;
  bool arrives;  ///< the data, in the end
};
const Nak kNaks[] = {
    {"psn_sequence", CompletionStatus::success, 1, true},
    {"invalid_request", CompletionStatus::remote_invalid_request, 0, false},
    {"remote_access", CompletionStatus::remote_access, 0, false},
    {"remote_operational", CompletionStatus::remote_operation, 0, false},
};

TEST_F(Trouble, ANakHasTheEffectOfItsCause) {
  for (const Nak& nak : kNaks) {
    Troubled pair(rule(R"(packet = "out RC.WRITE*", nth = 1)",
                       std::string(R"(inject = "nak", syndrome = ")") + nak.syndrome + "\""));
    pair.write(2);
    settle(*pair.a, *pair.b);
    const Statuses sent = pair.qp_a->sent();
    ASSERT_EQ(sent.size(), 2U) << nak.syndrome;
    EXPECT_EQ(sent[0], nak.status) << nak.syndrome;
    EXPECT_EQ(sent[1], nak.arrives ? CompletionStatus::success : CompletionStatus::work_request_flushed)
        << nak.syndrome;
    EXPECT_GE(pair.a->transport().naks_received, 1U);
    EXPECT_GE(pair.a->transport().sequence_naks_received, nak.sequence_naks);
    EXPECT_EQ(pair.b->transport().messages_received, nak.arrives ? 2U : 0U) << nak.syndrome;
    EXPECT_EQ(pair.a->transport().timeouts, 0U);
  }
}

TEST_F(Trouble, AnRnrNakAnswersARequestThatArrives) {
  // The second of three messages of the peer. Timer 1: 10 us.
  Troubled pair(rule(R"(packet = "in RC.WRITE*", nth = 2)", R"(inject = "rnr", timer = 1)"));
  for (unsigned i = 0; i < 3; ++i) pair.qp_b->write(1);
  pair.b->turn();
  ASSERT_EQ(carry(*pair.b, *pair.a), 3U);
  pair.a->turn();
  EXPECT_EQ(pair.a->transport().messages_received, 1U);
  EXPECT_EQ(pair.a->transport().rnr_naks_sent, 1U);
  EXPECT_EQ(pair.a->transport().naks_sent, 0U) << "the gap has no answer of its own";
  ASSERT_EQ(carry(*pair.a, *pair.b), 1U);
  pair.b->turn();
  EXPECT_EQ(pair.b->transport().rnr_naks_received, 1U);
  EXPECT_EQ(pair.qp_b->sent(), succeeded(1));
  VirtualClock::advance(10 * kMicrosecond + kTickNs);
  settle(*pair.a, *pair.b);
  EXPECT_EQ(pair.qp_b->sent(), succeeded(2));
  EXPECT_EQ(pair.a->transport().messages_received, 3U);
  EXPECT_EQ(pair.b->transport().timeouts, 0U);
  EXPECT_EQ(pair.journal.size(), 1U);
  EXPECT_FALSE(pair.a->turn());
}

TEST_F(Trouble, ARefusedRequestWaitsForThoseBeforeIt) {
  Troubled pair(rule(R"(packet = "in RC.WRITE*", nth = 1)", R"(inject = "nak", syndrome = "remote_access")"));
  for (unsigned i = 0; i < 2; ++i) pair.qp_b->write(1);
  pair.b->turn();
  const std::vector<Frame> requests = pair.b->port.take_sent();
  ASSERT_EQ(requests.size(), 2U);
  pair.a->port.deliver(requests[1]);
  pair.a->turn();
  ASSERT_EQ(pair.journal.size(), 1U) << "the second request is the first that arrives";
  EXPECT_FALSE(pair.a->turn()) << "no turn is worth while before the first request";
  EXPECT_TRUE(pair.a->port.take_sent().empty());
  pair.a->port.deliver(requests[0]);
  pair.a->turn();
  settle(*pair.a, *pair.b);
  EXPECT_EQ(pair.qp_b->sent(), (Statuses{CompletionStatus::success, CompletionStatus::remote_access}));
  EXPECT_EQ(pair.a->transport().messages_received, 1U);
}

TEST_F(Trouble, ANakToARequestThatArrivesHasTheEffectOfItsCauseOnBothQps) {
  for (const Nak& nak : kNaks) {
    Troubled pair(rule(R"(packet = "in RC.WRITE*", nth = 1)",
                       std::string(R"(inject = "nak", syndrome = ")") + nak.syndrome + "\""));
    for (unsigned i = 0; i < 2; ++i) pair.qp_b->write(1);
    settle(*pair.a, *pair.b);
    const Statuses sent = pair.qp_b->sent();
    ASSERT_EQ(sent.size(), 2U) << nak.syndrome;
    EXPECT_EQ(sent[0], nak.status) << nak.syndrome;
    EXPECT_EQ(sent[1], nak.arrives ? CompletionStatus::success : CompletionStatus::work_request_flushed)
        << nak.syndrome;
    EXPECT_GE(pair.a->transport().naks_sent, 1U);
    EXPECT_GE(pair.b->transport().sequence_naks_received, nak.sequence_naks);
    EXPECT_EQ(pair.a->transport().messages_received, nak.arrives ? 2U : 0U) << nak.syndrome;
    EXPECT_EQ(state_of(pair.qp_a->get()), nak.arrives ? transport::QpState::rts : transport::QpState::err)
        << nak.syndrome;
    EXPECT_EQ(pair.b->transport().timeouts, 0U);
  }
}

TEST_F(Trouble, AnAnsweredRequestThatComesAgainIsNotRefused) {
  Troubled pair(rule(R"(packet = "in RC.WRITE*", nth = 2)", R"(inject = "nak", syndrome = "remote_access")"));
  pair.qp_b->write(1);
  pair.b->turn();
  const std::vector<Frame> request = pair.b->port.take_sent();
  ASSERT_EQ(request.size(), 1U);
  for (int i = 0; i < 2; ++i) {
    pair.a->port.deliver(request[0]);
    pair.a->turn();
  }
  settle(*pair.a, *pair.b);
  EXPECT_EQ(pair.qp_b->sent(), succeeded(1));
  EXPECT_TRUE(pair.journal.empty());
}

TEST_F(Trouble, AReceivedWriteTakesThePagesOfItsRegion) {
  Troubled pair(rule(R"(packet = "in RC.WRITE*")", R"(memory = "page_out")"));
  pair.qp_b->write(1);
  settle(*pair.a, *pair.b);
  EXPECT_EQ(pair.a->memory.paged_out, std::vector<odp::Key>{PlainMemory::kKey});
  EXPECT_EQ(pair.qp_b->sent(), succeeded(1));
}

TEST_F(Trouble, MessagesOfTheConnectionManagerAreSelectedByTheirPeer) {
  struct Case {
    const char* when;
    bool is_lost;
  };
  const Case cases[] = {{R"(packet = "out CM.DREQ", peer = "198.18.0.2")", true},
                        {R"(packet = "out CM.DREQ", peer = "198.18.0.3")", false},
                        {R"(packet = "out CM.REQ", peer = "198.18.0.2")", false}};
  wire::MadBytes mad;
  wire::write_cm_header(mad, wire::CmAttribute::dreq, 1);
  for (const Case& one : cases) {
    Troubled pair(rule(one.when, R"(packet = "lose")"));
    ASSERT_TRUE(pair.a->engine.core().send_mad(mad, pair.a->path_to(*pair.b), wire::kDefaultPkey));
    pair.a->turn();
    EXPECT_EQ(pair.a->port.take_sent().size(), one.is_lost ? 0U : 1U) << one.when;
  }
  // The other direction.
  for (const char* const peer : {"198.18.0.2", "198.18.0.3"}) {
    Troubled pair(
        rule(std::string(R"(packet = "in CM.DREQ", peer = ")") + peer + "\"", R"(packet = "lose")"));
    ASSERT_TRUE(pair.b->engine.core().send_mad(mad, pair.b->path_to(*pair.a), wire::kDefaultPkey));
    pair.b->turn();
    ASSERT_EQ(carry(*pair.b, *pair.a), 1U);
    pair.a->turn();
    EXPECT_EQ(pair.a->count(&PortCounts::chaos_lost), peer == std::string("198.18.0.2") ? 1U : 0U);
  }
}

}  // namespace
}  // namespace faultline::glue::test::trouble_test
