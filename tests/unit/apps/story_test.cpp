// SPDX-License-Identifier: BSD-3-Clause
// Stories of golden captures, of cut and re-framed ones, and of made-up exchanges.
#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "apps/faultline/story/analysis.hpp"
#include "apps/faultline/story/capture_story.hpp"
#include "apps/faultline/story/page.hpp"
#include "stack/wire/packet/frame.hpp"
#include "tests/unit/apps/story_files.hpp"

namespace faultline::story::story_test {
namespace {

using test::Bytes;
using test::CaptureWriter;

Story story_of(const Bytes& file) {
  Story story;
  EXPECT_EQ(read_capture_story(file, story), "");
  analyse(story);
  return story;
}

bool has_finding(const Story& story, Rule rule) {
  return std::ranges::any_of(story.findings, [&](const Finding& one) { return one.rule == rule; });
}

/// A capture of packets that a test makes.
class Exchange {
 public:
  static constexpr uint32_t kQpns[2] = {17, 18};

  Exchange() {
    file_.section();
    file_.interface(1, 0, {.resolution = 9});
  }

  void send(unsigned end, uint64_t time_ns, wire::Opcode opcode, uint32_t psn, uint8_t syndrome = 0,
            bool page_fault = false) {
    wire::PathHeader path;
    path.source_gid = wire::Gid::from_ipv4(0xc6120001 + end);
    path.destination_gid = wire::Gid::from_ipv4(0xc6120002 - end);
    const wire::FrameTemplate header(path);
    wire::PacketFields fields;
    fields.bth.opcode = opcode;
    fields.bth.destination_qpn = kQpns[1 - end];
    fields.bth.psn = wire::Psn(psn);
    fields.bth.page_fault = page_fault;
    fields.aeth = {.syndrome = syndrome, .msn = 1};
    Bytes frame(header.frame_bytes(opcode, 0) + 8);
    uint8_t* const payload = header.write_headers(frame, fields, 0);
    frame.resize(header.seal(frame, payload, 0));
    file_.enhanced(0, time_ns, frame, static_cast<uint32_t>(frame.size()));
  }
  void request(uint64_t time_ns, uint32_t psn) { send(0, time_ns, wire::Opcode::rc_send_only, psn); }
  void answer(uint64_t time_ns, uint32_t psn, uint8_t syndrome = wire::kAethCreditsInvalid,
              bool page_fault = false) {
    send(1, time_ns, wire::Opcode::rc_acknowledge, psn, syndrome, page_fault);
  }
  [[nodiscard]] Story story() const { return story_of(file_.bytes()); }

 private:
  CaptureWriter file_{false};
};

constexpr uint64_t kMs = 1'000'000;
constexpr uint8_t kSequenceNak = wire::kAethNak;
constexpr uint8_t kRnr = wire::kAethRnrNak | 1;

TEST(Story, OfEveryGoldenCaptureHasEachPacket) {
  size_t captures = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TEST_DATA_DIR) + "/wire")) {
    if (entry.path().extension() != ".pcap") continue;
    const std::string name = entry.path().filename();
    const Story story = story_of(test::golden(name));
    EXPECT_EQ(story.events.size(), test::frames_of_golden(name).size()) << name;
    EXPECT_EQ(story.other_frames + story.invalid_packets, 0U) << name;
    uint64_t sent = 0;
    for (const Connection& one : story.connections) sent += one.sent[0].packets + one.sent[1].packets;
    EXPECT_EQ(sent, story.events.size()) << name;
    ++captures;
  }
  EXPECT_GT(captures, 40U);
}

TEST(Story, PairsTheQpsOfTheConnectionManager) {
  const Story story = story_of(test::golden("cm_rping.pcap"));
  const auto connected = std::ranges::find(story.connections, wire::Service::rc, &Connection::service);
  ASSERT_NE(connected, story.connections.end());
  EXPECT_NE(connected->ends[0].qpn, 0U);
  EXPECT_NE(connected->ends[1].qpn, 0U);
  EXPECT_EQ(connected->sent[0].packets + connected->sent[1].packets, 48U);
  EXPECT_EQ(std::ranges::count(story.connections, wire::Service::rc, &Connection::service), 1);
}

TEST(Story, PairsQpsByTheirAnswers) {
  const Story story = story_of(test::golden("rc_read.pcap"));
  ASSERT_EQ(story.connections.size(), 1U);
  EXPECT_EQ(story.connections[0].sent[0].packets, 16U);
  EXPECT_EQ(story.connections[0].sent[1].packets, 64U);
  EXPECT_EQ(story.connections[0].sent[0].retransmitted + story.connections[0].sent[1].retransmitted, 0U);
}

TEST(Story, FollowsPsnsAcrossTheirWrap) {
  const Story story = story_of(test::golden("v_psn_wrap.pcap"));
  for (const Connection& one : story.connections)
    EXPECT_EQ(one.sent[0].retransmitted + one.sent[1].retransmitted, 0U);
  for (const Event& event : story.events) EXPECT_LT(std::abs(event.psn), 1000);
}

TEST(Story, CountsRetransmissionsAndFindsTheStorm) {
  const Story story = story_of(test::golden("seq_nak_write.pcap"));
  ASSERT_EQ(story.connections.size(), 1U);
  EXPECT_EQ(story.connections[0].sent[1].sequence_naks, 2U);
  EXPECT_GT(story.connections[0].sent[0].retransmitted, 50U);
  EXPECT_TRUE(has_finding(story, Rule::go_back_n_storm));
  EXPECT_FALSE(has_finding(story, Rule::rnr_storm));
}

TEST(Story, OfAQuietExchangeHasNoFinding) {
  for (const char* const name :
       {"rc_write.pcap", "rc_send.pcap", "uc_send.pcap", "ud_send.pcap", "v_atomics.pcap"}) {
    const Story story = story_of(test::golden(name));
    EXPECT_TRUE(story.findings.empty())
        << name << ": " << (story.findings.empty() ? "" : story.findings[0].text);
  }
}

TEST(Story, ReadsCutFramesAndOtherLinkTypes) {
  const std::vector<Bytes> frames = test::frames_of_golden("rc_send.pcap");
  const Story whole = story_of(test::golden("rc_send.pcap"));
  CaptureWriter cut(false);
  cut.pcap_header(true, 1);
  CaptureWriter raw(true);
  raw.pcap_header(true, 101);
  CaptureWriter cooked(false);
  cooked.pcap_header(false, 113);
  CaptureWriter cooked_2(false);
  cooked_2.pcap_header(false, 276);
  for (const Bytes& frame : frames) {
    const auto size = static_cast<uint32_t>(frame.size());
    const Bytes ip(frame.begin() + 14, frame.end());
    cut.pcap_packet(1, 0, Bytes(frame.begin(), frame.begin() + std::min<ptrdiff_t>(size, 64)), size);
    raw.pcap_packet(1, 0, ip, size - 14);
    Bytes head(16);
    head[14] = 8;
    head.insert(head.end(), ip.begin(), ip.end());
    cooked.pcap_packet(1, 0, head, size + 2);
    Bytes head_2(20);
    head_2[0] = 8;
    head_2.insert(head_2.end(), ip.begin(), ip.end());
    cooked_2.pcap_packet(1, 0, head_2, size + 6);
  }
  for (const CaptureWriter* file : {&cut, &raw, &cooked, &cooked_2}) {
    const Story story = story_of(file->bytes());
    ASSERT_EQ(story.events.size(), whole.events.size());
    for (size_t i = 0; i < story.events.size(); ++i) {
      EXPECT_EQ(story.events[i].code, whole.events[i].code);
      EXPECT_EQ(story.events[i].psn, whole.events[i].psn);
      EXPECT_EQ(story.events[i].length_bytes, whole.events[i].length_bytes);
    }
  }
}

TEST(Story, MeasuresAStallAndItsCause) {
  Exchange exchange;
  exchange.request(0, 100);
  exchange.answer(10'000, 100);
  exchange.request(20'000, 101);
  exchange.request(30'000, 102);
  exchange.answer(40'000, 101, kSequenceNak);
  exchange.request(5 * kMs, 101);
  exchange.request(5 * kMs + 10, 102);
  exchange.answer(5 * kMs + 20'000, 102);
  const Story story = exchange.story();
  ASSERT_EQ(story.stalls.size(), 1U);
  EXPECT_EQ(story.stalls[0].cause, StallCause::loss);
  EXPECT_EQ(story.stalls[0].begin_ns, 20'000U);
  EXPECT_EQ(story.stalls[0].end_ns, 5 * kMs + 20'000);
  EXPECT_EQ(story.stalls[0].psn, 1);
  EXPECT_EQ(story.connections[0].sent[0].retransmitted, 2U);
  EXPECT_FALSE(has_finding(story, Rule::go_back_n_storm)) << "two packets are no storm";
}

TEST(Story, FindsAnRnrStorm) {
  Exchange exchange;
  exchange.request(0, 7);
  for (uint64_t i = 1; i <= 5; ++i) {
    exchange.answer(i * kMs, 7, kRnr);
    exchange.request(i * kMs + 1000, 7);
  }
  exchange.answer(20 * kMs, 7);
  const Story story = exchange.story();
  EXPECT_TRUE(has_finding(story, Rule::rnr_storm));
  EXPECT_EQ(story.stalls.at(0).cause, StallCause::receiver_unready);

  Exchange rare;
  rare.request(0, 7);
  for (uint64_t i = 1; i <= 5; ++i) rare.answer(i * 101 * kMs, 7, kRnr);
  EXPECT_FALSE(has_finding(rare.story(), Rule::rnr_storm)) << "one in 101 ms";
}

TEST(Story, MeasuresThePageFaultsThatAnswersState) {
  Exchange exchange;
  exchange.request(0, 50);
  exchange.answer(kMs / 10, 50, kRnr, true);
  exchange.request(4 * kMs, 50);
  exchange.answer(4 * kMs + 5'000, 50);
  const Story story = exchange.story();
  ASSERT_EQ(story.faults.size(), 1U);
  EXPECT_EQ(story.faults[0].end, 0U);
  EXPECT_EQ(story.faults[0].at, 1U);
  EXPECT_EQ(story.faults[0].begin_ns, kMs / 10);
  EXPECT_EQ(story.faults[0].end_ns, 4 * kMs + 5'000);
  EXPECT_EQ(story.stalls.at(0).cause, StallCause::page_fault);
  EXPECT_TRUE(has_finding(story, Rule::fault_in_critical_path));
  EXPECT_FALSE(has_finding(story, Rule::rnr_storm));
}

TEST(Story, IgnoresALateAnswerThatStatesAPageFault) {
  Exchange exchange;
  exchange.request(0, 50);
  exchange.request(10, 51);
  exchange.answer(20'000, 51);
  exchange.answer(30'000, 50, wire::kAethCreditsInvalid, true);
  exchange.request(9 * kMs, 52);
  exchange.answer(9 * kMs + 10, 52);
  EXPECT_TRUE(exchange.story().faults.empty());
}

TEST(Story, FindsAWindowThatNeverOpens) {
  for (const uint8_t credits : {uint8_t{0}, uint8_t{5}}) {
    Exchange exchange;
    for (uint32_t i = 0; i < 10; ++i) {
      exchange.request(i * 20'000, i);
      exchange.answer(i * 20'000 + 10'000, i, credits);
    }
    EXPECT_EQ(has_finding(exchange.story(), Rule::closed_window), credits == 0);
  }
}

TEST(StoryPage, IsOneFileThatLoadsNothing) {
  Story story = story_of(test::golden("rc_write.pcap"));
  story.source = "</script><b>@COLUMNS@\xff";
  const std::string page = page_of(story);
  EXPECT_EQ(page.find("</script><b>"), std::string::npos) << "a name that ends the element";
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("http"), page.find("http-equiv")) << "an address";
  EXPECT_NE(page.find(columns_of(story)), std::string::npos);
}

}  // namespace
}  // namespace faultline::story::story_test
