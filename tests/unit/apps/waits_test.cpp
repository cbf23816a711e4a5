// SPDX-License-Identifier: BSD-3-Clause
// Control calls and waits of work requests in recordings, and the rules of thumb about the waits.
#include <algorithm>

#include <gtest/gtest.h>

#include "apps/faultline/story/names.hpp"
#include "apps/faultline/story/page.hpp"
#include "tests/unit/apps/recorded.hpp"

namespace faultline::story::waits_test {
namespace {

using record::ControlCall;
using record::ControlRow;
using status::WaitsFor;

using test::kAcknowledge;
using test::Kind;
using test::kSendOnly;
using test::Record;
using test::Recording;

constexpr uint64_t kMs = 1'000'000;
constexpr uint8_t kReadRequest = 0x0c;
constexpr uint8_t kWrite = 0;
constexpr uint8_t kSend = 2;
constexpr uint8_t kRead = 4;
constexpr uint32_t kWindow = 256;

class Waits : public test::Recorded {
 protected:
  Waits() : recording_(create()), ring_(&recording_->ring_of_core(0)) { connect(*recording_); }

  void post(uint64_t time_ns, uint16_t number, uint8_t operation = kSend, uint32_t length_bytes = 64) {
    Record one = record(Kind::posted, time_ns, 0, operation);
    one.number = number;
    one.argument = length_bytes;
    ring_->add(one);
  }
  void send(uint64_t time_ns, uint32_t psn, uint16_t number, uint8_t operation = kSend,
            uint32_t length_bytes = 64, uint8_t opcode = kSendOnly) {
    Record one = record(Kind::sent, time_ns, psn, opcode);
    one.request = static_cast<uint8_t>(record::kStartsRequest + operation);
    one.number = number;
    one.argument = length_bytes;
    ring_->add(one);
  }
  void acknowledge(uint64_t time_ns, uint32_t psn, uint8_t syndrome = wire::kAethCreditsInvalid) {
    Record one = record(Kind::received, time_ns, psn, kAcknowledge);
    one.syndrome = syndrome;
    ring_->add(one);
  }
  void complete(uint64_t time_ns, uint16_t number, uint8_t status = 0) {
    Record one = record(Kind::completion, time_ns, 0, status);
    one.number = number;
    ring_->add(one);
  }
  void wait(uint64_t time_ns, WaitsFor what, uint32_t psn, uint32_t window_packets = kWindow) {
    Record one = record(Kind::waiting, time_ns, psn, static_cast<uint8_t>(what));
    one.argument = window_packets;
    one.number = kWindow;
    one.length_bytes = 3;
    ring_->add(one);
  }
  [[nodiscard]] Story story() const { return story_of(bytes_of(recording_->file())); }

  std::unique_ptr<Recording> recording_;
  record::RingWriter* ring_;
};

bool has(const Story& story, Rule rule) {
  return std::ranges::any_of(story.findings, [&](const Finding& one) { return one.rule == rule; });
}

TEST_F(Waits, ARequestThatStartsInItsTurnWaitsForNothing) {
  send(1000, 5, 0);
  acknowledge(3000, 5);
  complete(3500, 0);
  const Story story = this->story();
  ASSERT_EQ(story.requests.size(), 1U);
  const WorkRequest& request = story.requests[0];
  EXPECT_EQ(request.operation, kSend);
  EXPECT_EQ(request.length_bytes, 64U);
  EXPECT_EQ(request.posted_ns, request.first_packet_ns);
  EXPECT_EQ(request.acknowledged_ns, 2000U);
  EXPECT_EQ(request.completed_ns, 2500U);
  EXPECT_EQ(request.waited_for, WaitsFor::nothing);
}

TEST_F(Waits, ARequestHasTheTimesOfPostPacketAcknowledgementAndCompletion) {
  send(1000, 5, 0);
  post(2000, 1, kWrite, 4000);
  wait(2000, WaitsFor::credit, 6);
  acknowledge(5000, 5);
  send(5000, 6, 1, kWrite, 4000);
  acknowledge(6000, 6);
  acknowledge(9000, 9);
  complete(9500, 1);
  const Story story = this->story();
  ASSERT_EQ(story.requests.size(), 2U);
  const WorkRequest& request = story.requests[1];
  EXPECT_EQ(request.operation, kWrite);
  EXPECT_EQ(request.posted_ns, 1000U);
  EXPECT_EQ(request.first_packet_ns, 4000U);
  EXPECT_EQ(request.psn, 1);
  EXPECT_EQ(request.waited_for, WaitsFor::credit);
  EXPECT_EQ(request.acknowledged_ns, 8000U) << "its four packets";
  EXPECT_EQ(request.completed_ns, 8500U);
  const auto posts = std::ranges::count(story.events, EventKind::post, &Event::kind);
  EXPECT_EQ(posts, 2);
  const nlohmann::ordered_json json = summary_of(story);
  ASSERT_EQ(json["requests"].size(), 2U);
  EXPECT_EQ(json["requests"][0]["waited_for"], "credit") << "the longest wait is first";
  EXPECT_EQ(json["requests"][0]["psn"], 6);
}

TEST_F(Waits, AReadIsAcknowledgedByItsLastResponse) {
  constexpr uint8_t kResponseFirst = 0x0d;
  constexpr uint8_t kResponseLast = 0x0f;
  send(1000, 5, 0, kRead, 2000, kReadRequest);
  ring_->add(record(Kind::received, 2000, 5, kResponseFirst));
  ring_->add(record(Kind::received, 3000, 6, kResponseLast));
  const Story story = this->story();
  ASSERT_EQ(story.requests.size(), 1U);
  EXPECT_EQ(story.requests[0].acknowledged_ns, 2000U);
  EXPECT_EQ(story.requests[0].completed_ns, WorkRequest::kNever) << "unsignaled";
}

TEST_F(Waits, ARequestThatIsNeverSentWaitsToTheEnd) {
  send(1000, 5, 0);
  post(1000, 1);
  post(1500, 2);
  wait(1500, WaitsFor::receiver, 6);
  complete(90'000, 1, 5);
  const Story story = this->story();
  ASSERT_EQ(story.requests.size(), 3U);
  EXPECT_FALSE(story.requests[1].has_started());
  EXPECT_EQ(story.requests[1].completed_ns, 89'000U);
  EXPECT_EQ(story.requests[1].status, 5U) << "flushed";
  EXPECT_EQ(story.requests[2].completed_ns, WorkRequest::kNever);
  EXPECT_EQ(story.requests[2].waited_for, WaitsFor::receiver);
  for (const Event& event : story.events) EXPECT_GE(event.psn, 0);
}

TEST_F(Waits, NumbersBeginAnewAfterAReset) {
  post(1000, 500);
  post(2000, 0);
  send(3000, 9, 0);
  const Story story = this->story();
  ASSERT_EQ(story.requests.size(), 2U);
  EXPECT_FALSE(story.requests[0].has_started());
  EXPECT_TRUE(story.requests[1].has_started());
  EXPECT_EQ(story.requests[1].posted_ns, 1000U);
}

TEST_F(Waits, NumbersWrap) {
  post(1000, 65535, kWrite);
  post(1000, 0, kRead);
  send(2000, 5, 65535, kWrite);
  send(3000, 6, 0, kRead, 64, kReadRequest);
  const Story story = this->story();
  ASSERT_EQ(story.requests.size(), 2U);
  EXPECT_EQ(story.requests[0].first_packet_ns, 1000U);
  EXPECT_EQ(story.requests[1].first_packet_ns, 2000U);
}

/// `rounds` times: all of the window is sent, then it is full until the acknowledgement. Then the last
/// packet.
class Windows : public Waits {
 protected:
  void fill(uint32_t rounds, uint64_t round_trip_ns, uint32_t window_packets, bool with_loss = false) {
    uint32_t psn = 0;
    uint64_t now_ns = 1000;
    for (uint32_t round = 0; round < rounds; ++round) {
      for (uint32_t i = 0; i < 4; ++i, ++psn) send(now_ns, psn, static_cast<uint16_t>(psn));
      wait(now_ns, WaitsFor::window, psn, window_packets);
      if (with_loss) acknowledge(now_ns + round_trip_ns / 2, psn - 1, wire::kAethNak);
      now_ns += round_trip_ns;
      acknowledge(now_ns, psn - 1);
    }
    send(now_ns, psn, static_cast<uint16_t>(psn));
    acknowledge(now_ns + 1, psn);
  }
};

TEST_F(Windows, OneThatStaysFullIsFound) {
  fill(10, 2 * kMs, kWindow);
  const Story story = this->story();
  EXPECT_TRUE(has(story, Rule::full_window));
  EXPECT_FALSE(has(story, Rule::cut_window));
  EXPECT_FALSE(has(story, Rule::closed_window)) << "that rule is about credits";
}

TEST_F(Windows, AFullOneWithFastAcknowledgementsIsUsual) {
  fill(1000, 50'000, kWindow);
  EXPECT_FALSE(has(story(), Rule::full_window));
}

TEST_F(Windows, AFullOneForAShortTimeIsUsual) {
  fill(3, 2 * kMs, kWindow);
  EXPECT_FALSE(has(story(), Rule::full_window));
}

TEST_F(Windows, AFullOneOfALargelyIdleConnectionIsUsual) {
  fill(10, 2 * kMs, kWindow);
  send(500 * kMs, 41, 41);
  acknowledge(501 * kMs, 41);
  EXPECT_FALSE(has(story(), Rule::full_window));
}

TEST_F(Windows, LossesExplainAFullOne) {
  fill(10, 2 * kMs, kWindow, true);
  EXPECT_FALSE(has(story(), Rule::full_window));
}

TEST_F(Windows, OneThatStaysCutIsFound) {
  fill(1000, 50'000, 8, true);
  const Story story = this->story();
  ASSERT_TRUE(has(story, Rule::cut_window));
  EXPECT_FALSE(has(story, Rule::full_window));
  const auto finding = std::ranges::find(story.findings, Rule::cut_window, &Finding::rule);
  EXPECT_NE(finding->text.find("to 8 packets"), std::string::npos) << finding->text;
}

TEST_F(Windows, OneThatIsCutForAShortTimeIsUsual) {
  fill(20, 50'000, 8, true);
  EXPECT_FALSE(has(story(), Rule::cut_window));
}

TEST_F(Waits, AQueueThatPacingNeverEmptiesIsFound) {
  for (uint32_t i = 0; i < 200; ++i) {
    send(1000 + i * 100'000, i, static_cast<uint16_t>(i));
    wait(1000 + i * 100'000, WaitsFor::pace, i + 1);
  }
  acknowledge(20 * kMs, 199);
  const Story story = this->story();
  ASSERT_TRUE(has(story, Rule::paced_queue));
  EXPECT_FALSE(has(story, Rule::full_window));
}

TEST_F(Waits, PacingThatSeldomHoldsIsUsual) {
  for (uint32_t i = 0; i < 200; ++i) {
    send(1000 + i * 100'000, i, static_cast<uint16_t>(i));
    if (i % 4 == 0) wait(1000 + i * 100'000, WaitsFor::pace, i + 1);
  }
  EXPECT_FALSE(has(story(), Rule::paced_queue));
}

TEST_F(Waits, WaitsForAPageAreNoFullWindow) {
  send(1000, 5, 0);
  post(1000, 1);
  wait(1000, WaitsFor::page, 6);
  send(100 * kMs, 6, 1);
  const Story story = this->story();
  EXPECT_TRUE(story.findings.empty());
  EXPECT_EQ(story.requests[1].waited_for, WaitsFor::page);
}

class Controls : public test::Recorded {
 protected:
  static ControlRow row(ControlCall call, uint64_t time_ns, uint32_t object) {
    ControlRow one;
    one.call = call;
    one.time_ns = time_ns;
    one.duration_ns = 10;
    one.object = object;
    return one;
  }
};

TEST_F(Controls, AreOfTheQpThatTheyName) {
  const auto recording = create();
  connect(*recording);
  recording->controls().add(row(ControlCall::open_device, 100, 0));
  ControlRow modify = row(ControlCall::modify_qp, 200, 17);
  modify.from_state = 1;
  modify.to_state = 3;
  modify.error = EINVAL;
  recording->controls().add(modify);
  recording->ring_of_core(0).add(record(Kind::sent, 50'000, 5, kSendOnly));
  ControlRow idle = row(ControlCall::create_qp, 60'000, 18);
  idle.qp_type = 4;
  recording->controls().add(idle);
  const Story story = story_of(bytes_of(recording->file()));
  ASSERT_EQ(story.controls.size(), 3U);
  EXPECT_EQ(story.controls[0].connection, Control::kOfDevice);
  EXPECT_EQ(story.controls[1].connection, 0U);
  EXPECT_EQ(story.controls[2].connection, 1U) << "a QP without a packet is a connection too";
  EXPECT_EQ(story.connections[1].service, wire::Service::ud);
  EXPECT_EQ(text_of(story.controls[1].row), "modify QP 0x11: INIT to RTS: EINVAL");
  const auto of_device = std::ranges::count_if(
      story.events, [](const Event& one) { return one.kind == EventKind::control && one.argument == 0; });
  EXPECT_EQ(of_device, 2) << "a call of the device is shown with each connection";
  EXPECT_EQ(story.connections[0].begin_ns, 49'900U) << "control calls do not begin the traffic";
  const nlohmann::ordered_json json = summary_of(story);
  EXPECT_EQ(json["controls"][1]["from"], "INIT");
  EXPECT_EQ(json["controls"][1]["error"], EINVAL);
}

TEST_F(Controls, OfARegionHaveItsRangeAndRights) {
  const auto recording = create();
  connect(*recording);
  ControlRow region = row(ControlCall::register_mr, 100, 0x1200);
  region.address = 0x7f0000001000;
  region.length_bytes = 8192;
  region.access = 1U | 1U << 1 | 1U << 6;
  recording->controls().add(region);
  recording->ring_of_core(0).add(record(Kind::sent, 500, 5, kSendOnly));
  const Story story = story_of(bytes_of(recording->file()));
  ASSERT_EQ(story.controls.size(), 1U);
  EXPECT_EQ(text_of(story.controls[0].row),
            "register MR of 8192 B at 0x7f0000001000, lkey 0x1200: local write, remote write, on demand");
}

TEST_F(Controls, TheNewestStayAndTheOthersAreCounted) {
  const auto recording = create();
  connect(*recording);
  recording->ring_of_core(0).add(record(Kind::sent, 1, 5, kSendOnly));
  for (uint32_t i = 0; i < record::kControlRows + 7; ++i)
    recording->controls().add(row(ControlCall::create_cq, 10 + i, i + 1));
  const Story story = story_of(bytes_of(recording->file()));
  EXPECT_EQ(story.lost_controls, 7U);
  ASSERT_EQ(story.controls.size(), record::kControlRows);
  EXPECT_EQ(story.controls[0].row.object, 8U);
}

TEST_F(Controls, AnOlderRecordingIsRefusedWithOneLine) {
  const auto recording = create();
  test::Bytes file = bytes_of(recording->file());
  file[sizeof(record::kMagic)] = 1;
  Story story;
  EXPECT_EQ(
      read_recording_story(file, story),
      "a recording of version 1, and this program reads version 2: record anew, or use an older faultline");
}

}  // namespace
}  // namespace faultline::story::waits_test
