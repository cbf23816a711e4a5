// SPDX-License-Identifier: BSD-3-Clause
// Recordings: what a story has of one, its ring's end, its files' names, and files that are cut or wrong.
#include "stack/record/recording.hpp"

#include <algorithm>
#include <filesystem>
#include <random>

#include <gtest/gtest.h>
#include <unistd.h>

#include "apps/faultline/story/page.hpp"
#include "tests/unit/apps/recorded.hpp"

namespace faultline::story::recording_test {
namespace {

using record::Kind;
using record::Record;
using record::Recording;
using test::Bytes;

using test::kAcknowledge;
using test::kRingRecords;
using test::kSendOnly;
using test::Recorded;

TEST_F(Recorded, StoryHasTheConnectionAndItsEvents) {
  const auto recording = create();
  connect(*recording);
  record::RingWriter& ring = recording->ring_of_core(0);
  Record first = record(Kind::sent, 1000, 5, kSendOnly);
  first.request = record::kStartsRequest + 2;
  first.argument = 64;
  ring.add(first);
  Record& kept = ring.add(record(Kind::received, 1500, 0x800000, kSendOnly));
  kept.flags = record::kHeld;
  ring.add(record(Kind::sent, 300'000'000, 5, kSendOnly));
  Record answer = record(Kind::received, 300'000'900, 5, kAcknowledge);
  answer.syndrome = wire::kAethCreditsInvalid;
  ring.add(answer);
  ring.add(record(Kind::completion, 300'000'900, 0));
  ring.add(record(Kind::none, 300'000'900, 0));
  const Bytes file = bytes_of(recording->file());
  ASSERT_TRUE(is_recording(file));
  const Story story = story_of(file);
  ASSERT_EQ(story.connections.size(), 1U);
  const Connection& connection = story.connections[0];
  EXPECT_EQ(connection.ends[0].qpn, 17U);
  EXPECT_EQ(connection.ends[1].qpn, 99U);
  EXPECT_EQ(connection.ends[1].address.ipv4(), 0xc6120002);
  EXPECT_EQ(connection.sent[0].packets, 2U);
  EXPECT_EQ(connection.sent[0].retransmitted, 1U);
  EXPECT_EQ(connection.sent[1].packets, 2U);
  ASSERT_EQ(story.events.size(), 6U);
  EXPECT_EQ(story.events[0].kind, EventKind::post);
  EXPECT_EQ(story.events[0].length_bytes, 64U);
  EXPECT_TRUE(story.events[2].is(kHeld));
  EXPECT_TRUE(story.events[2].is(kReceived));
  EXPECT_EQ(story.events[2].psn, 0) << "the peer's requests have PSNs of their own";
  ASSERT_EQ(story.stalls.size(), 2U) << "the second is the peer's, whose packet is not acknowledged";
  EXPECT_EQ(story.stalls[0].end, 0U);
  EXPECT_EQ(story.stalls[0].end_ns - story.stalls[0].begin_ns, 300'000'900U - 1000U);
  EXPECT_EQ(story.origin.find("recording of faultline0 of "), 0U) << story.origin;
}

TEST_F(Recorded, FaultsHaveTheirDuration) {
  const auto recording = create();
  connect(*recording);
  record::RingWriter& ring = recording->ring_of_core(0);
  ring.add(record(Kind::sent, 1000, 5, kSendOnly));
  Record fault = record(Kind::fault, 2000, 6);
  fault.argument = 3;
  ring.add(fault);
  fault.argument = 4;
  fault.flags = record::kOfPeer;
  fault.time_ns = 2500;
  ring.add(fault);
  Record end = record(Kind::fault_end, 9'000'000, 0);
  end.argument = 3;
  ring.add(end);
  const Story story = story_of(bytes_of(recording->file()));
  ASSERT_EQ(story.faults.size(), 2U);
  EXPECT_EQ(story.faults[0].end_ns - story.faults[0].begin_ns, 9'000'000U - 2000U);
  EXPECT_EQ(story.faults[0].end, 0U);
  EXPECT_EQ(story.faults[0].at, 0U);
  EXPECT_EQ(story.faults[1].end, 1U) << "one without an end lasts until the recording's end";
}

TEST_F(Recorded, AnUnreadCompletionQueueIsFound) {
  for (const uint32_t unread : {3U, 100U}) {
    const auto recording = create();
    connect(*recording);
    Record completion = record(Kind::completion, 10, 0);
    completion.argument = unread;
    completion.length_bytes = 128;
    recording->ring_of_core(0).add(completion);
    const Story story = story_of(bytes_of(recording->file()));
    EXPECT_EQ(story.findings.size(), unread == 100 ? 1U : 0U);
  }
}

TEST_F(Recorded, AFullRingKeepsTheNewestAndCountsTheOthers) {
  const auto recording = create();
  connect(*recording);
  constexpr uint64_t kMore = 1000;
  for (uint64_t i = 0; i < kRingRecords + kMore; ++i)
    recording->ring_of_core(0).add(record(Kind::sent, i, static_cast<uint32_t>(i), kSendOnly));
  const Story story = story_of(bytes_of(recording->file()));
  EXPECT_EQ(story.lost_events, kMore);
  ASSERT_EQ(story.events.size(), kRingRecords);
  EXPECT_EQ(story.connections[0].first_psn[0], kMore);
}

TEST_F(Recorded, RingsAreMergedByTime) {
  const auto recording = create(2);
  connect(*recording);
  recording->ring_of_core(1).add(record(Kind::sent, 20, 2, kSendOnly));
  recording->ring_of_core(0).add(record(Kind::sent, 10, 1, kSendOnly));
  Record gone = record(Kind::invalidation, 0, 0);
  gone.argument = 12;
  recording->add_other(gone);
  const Story story = story_of(bytes_of(recording->file()));
  ASSERT_EQ(story.events.size(), 3U);
  EXPECT_EQ(story.events[0].psn, 0);
  EXPECT_EQ(story.events[1].psn, 1);
  EXPECT_EQ(story.events[2].kind, EventKind::invalidation) << "its time is the present";
  EXPECT_EQ(story.events[2].argument, 12U);
}

TEST_F(Recorded, AnExistingFileIsNotOverwritten) {
  const auto first = create();
  const auto second = create();
  const auto third = create();
  EXPECT_EQ(first->file(), folder_ / "f.rec");
  EXPECT_EQ(second->file(), first->file() + "." + std::to_string(getpid()));
  EXPECT_EQ(third->file(), second->file() + ".2");
  EXPECT_EQ(std::filesystem::status(first->file()).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(Recorded, AFolderThatDoesNotExistIsAnError) {
  std::string error;
  const std::string file = folder_ / "none" / "f.rec";
  EXPECT_EQ(Recording::create({.file = file, .device = "d"}, error), nullptr);
  EXPECT_EQ(error, "cannot write " + file + ": No such file or directory");
}

/// The sanitizers of other builds see each access of a file that lies.
TEST_F(Recorded, CutOrWithRandomBytesIsReadOrRefused) {
  const auto recording = create();
  connect(*recording);
  for (uint32_t i = 0; i < 100; ++i)
    recording->ring_of_core(0).add(record(i % 2 == 0 ? Kind::sent : Kind::received, i, i, kAcknowledge));
  const Bytes whole = bytes_of(recording->file());
  for (size_t length = 0; length < whole.size(); length += length < 5000 ? 13 : 100'003) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    Story story;
    if (!is_recording(cut)) continue;
    EXPECT_NE(read_recording_story(cut, story), "") << length;
  }
  std::mt19937 random(3);
  size_t read = 0;
  Bytes changed = whole;
  constexpr size_t kBegin = sizeof(record::kMagic);
  for (int round = 0; round < 400; ++round) {
    std::copy_n(whole.begin(), 4096, changed.begin());
    for (int k = 0; k < 3; ++k)
      changed[kBegin + random() % (sizeof(record::FileHeader) / 8)] = static_cast<uint8_t>(random());
    Story story;
    if (!read_recording_story(changed, story).empty()) continue;
    analyse(story);
    ++read;
  }
  EXPECT_GT(read, 20U);
}

}  // namespace
}  // namespace faultline::story::recording_test
