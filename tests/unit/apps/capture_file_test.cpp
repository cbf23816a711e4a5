// SPDX-License-Identifier: BSD-3-Clause
// Capture files: both formats and byte orders, their times and comments, and files that are cut or wrong.
#include "apps/faultline/story/capture_file.hpp"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "apps/faultline/story/analysis.hpp"
#include "apps/faultline/story/capture_story.hpp"
#include "tests/unit/apps/story_files.hpp"

namespace faultline::story::capture_file_test {
namespace {

using test::Bytes;
using test::CaptureWriter;

struct Taken {
  uint64_t time_ns;
  LinkType link;
  std::vector<uint8_t> bytes;
  uint32_t original_bytes;
};

std::vector<Taken> frames_of(const Bytes& file, CaptureEnd* end = nullptr) {
  std::vector<Taken> frames;
  const CaptureEnd read = read_capture(file, [&](const CapturedFrame& frame) {
    frames.push_back(
        {frame.time_ns, frame.link, {frame.bytes.begin(), frame.bytes.end()}, frame.original_bytes});
  });
  if (end != nullptr)
    *end = read;
  else
    EXPECT_EQ(read.error, "");
  return frames;
}

class ByteOrders : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Both, ByteOrders, testing::Bool());

TEST_P(ByteOrders, OfPcapng) {
  CaptureWriter file(GetParam());
  file.section();
  file.interface(1, 0, {.resolution = 9});
  file.interface(276, 96);
  file.enhanced(0, 5'000'000'123, {1, 2, 3}, 3, "a comment");
  file.block(5, {0, 0, 0, 0});  // statistics
  file.enhanced(1, 7'000'001, {4, 5, 6, 7}, 1500);
  const std::vector<Taken> frames = frames_of(file.bytes());
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(frames[0].time_ns, 5'000'000'123U);
  EXPECT_EQ(frames[0].link, LinkType::ethernet);
  EXPECT_EQ(frames[0].bytes, (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_EQ(frames[1].time_ns, 7'000'001'000U) << "microseconds without if_tsresol";
  EXPECT_EQ(frames[1].link, LinkType::linux_cooked_2);
  EXPECT_EQ(frames[1].original_bytes, 1500U);
}

TEST_P(ByteOrders, OfPcap) {
  for (const bool nanoseconds : {false, true}) {
    CaptureWriter file(GetParam());
    file.pcap_header(nanoseconds, 101);
    file.pcap_packet(3, 250, {9, 8}, 100);
    const std::vector<Taken> frames = frames_of(file.bytes());
    ASSERT_EQ(frames.size(), 1U);
    EXPECT_EQ(frames[0].time_ns, nanoseconds ? 3'000'000'250U : 3'000'250'000U);
    EXPECT_EQ(frames[0].link, LinkType::raw_ip);
    EXPECT_EQ(frames[0].bytes, (std::vector<uint8_t>{9, 8}));
    EXPECT_EQ(frames[0].original_bytes, 100U);
  }
}

TEST_P(ByteOrders, OfASimplePacketWhoseTimeIsThatOfTheOneBefore) {
  CaptureWriter file(GetParam());
  file.section();
  file.interface(1, 2);
  file.enhanced(0, 10, {1}, 1);
  file.simple({7, 8, 9}, 3);
  const std::vector<Taken> frames = frames_of(file.bytes());
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(frames[1].time_ns, 10'000U);
  EXPECT_EQ(frames[1].bytes, (std::vector<uint8_t>{7, 8})) << "the interface's snapshot length";
}

TEST(CaptureFile, HasTimesOfBinaryUnitsAndAnOffset) {
  CaptureWriter file(false);
  file.section();
  file.interface(1, 0, {.resolution = 0x80 + 10, .offset_s = 100});
  file.enhanced(0, 1024 + 512, {}, 0);
  EXPECT_EQ(frames_of(file.bytes()).at(0).time_ns, 101'500'000'000U);
}

TEST(CaptureFile, BeginsASectionWithoutTheInterfacesOfTheLast) {
  CaptureWriter file(false);
  file.section();
  file.interface(1, 0);
  file.section();
  file.enhanced(0, 1, {1}, 1);
  CaptureEnd end;
  EXPECT_TRUE(frames_of(file.bytes(), &end).empty());
  EXPECT_NE(end.error.find("an interface that is not described"), std::string::npos) << end.error;
  EXPECT_FALSE(end.truncated);
}

TEST(CaptureFile, IsRefusedWithTheReason) {
  const auto error_of = [](const Bytes& file) {
    CaptureEnd end;
    static_cast<void>(frames_of(file, &end));
    return end.error;
  };
  EXPECT_EQ(error_of({}), "neither a pcapng nor a pcap file");
  EXPECT_EQ(error_of({'h', 'e', 'l', 'l', 'o'}), "neither a pcapng nor a pcap file");
  CaptureWriter lengths(false);
  lengths.section();
  lengths.interface(1, 0);
  Bytes two_lengths = lengths.bytes();
  two_lengths[two_lengths.size() - 4] ^= 4;
  EXPECT_EQ(error_of(two_lengths), "at byte 28: a block whose two lengths differ");
  CaptureWriter resolution(false);
  resolution.section();
  resolution.interface(1, 0, {.resolution = 40});
  EXPECT_EQ(error_of(resolution.bytes()), "at byte 28: an unknown resolution of time");
  CaptureWriter packet(false);
  packet.section();
  packet.interface(1, 0);
  packet.enhanced(0, 1, {1, 2, 3, 4}, 4);
  Bytes too_long = packet.bytes();
  too_long[28 + 20 + 8 + 12] = 200;  // the captured length
  EXPECT_EQ(error_of(too_long), "at byte 48: a packet longer than its block");
}

/// Every prefix of a capture, and captures with random bytes in them, are read or refused within their
/// bounds: the sanitizers of the fuzzing builds see each access.
TEST(CaptureFile, CutAnywhereIsReadUpToThere) {
  const Bytes whole = test::golden("v_rnr_nak.pcap");
  Story complete;
  ASSERT_EQ(read_capture_story(whole, complete), "");
  for (size_t length = 0; length < whole.size(); ++length) {
    // A copy of its own, so that a read past its end is one of the heap.
    const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    Story story;
    const std::string error = read_capture_story(cut, story);
    EXPECT_LE(story.events.size(), complete.events.size());
    constexpr size_t kHeaderBytes = 24;  // alone a capture without a packet
    if (error.empty())
      EXPECT_EQ(story.events.empty(), length == kHeaderBytes) << length;
    else
      EXPECT_TRUE(story.events.empty()) << length;
  }
}

TEST(CaptureFile, WithRandomBytesIsReadOrRefused) {
  CaptureWriter writer(false);
  writer.section();
  writer.interface(1, 0, {.resolution = 9});
  for (const auto& packet : test::frames_of_golden("cm_rping.pcap"))
    writer.enhanced(0, 1000, packet, static_cast<uint32_t>(packet.size()), "a comment");
  const Bytes whole = writer.bytes();
  std::mt19937 random(7);
  size_t read = 0;
  for (int round = 0; round < 2000; ++round) {
    Bytes changed = whole;
    for (int k = 0; k < 4; ++k) changed[random() % changed.size()] = static_cast<uint8_t>(random());
    Story story;
    if (!read_capture_story(changed, story).empty()) continue;
    analyse(story);
    ++read;
  }
  EXPECT_GT(read, 200U);
}

}  // namespace
}  // namespace faultline::story::capture_file_test
