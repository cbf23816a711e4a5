// SPDX-License-Identifier: BSD-3-Clause
// A fixture for tests that write a recording and read its story.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "apps/faultline/story/analysis.hpp"
#include "apps/faultline/story/recording_story.hpp"
#include "stack/record/recording.hpp"
#include "stack/wire/packet/packet.hpp"
#include "tests/unit/apps/story_files.hpp"

namespace faultline::story::test {

using record::Kind;
using record::Record;
using record::Recording;

inline constexpr uint64_t kRingBytes = record::kLeastRingBytes;
inline constexpr uint64_t kRingRecords = kRingBytes / sizeof(Record);
inline constexpr uint8_t kSendOnly = 0x04;
inline constexpr uint8_t kAcknowledge = 0x11;

class Recorded : public testing::Test {
 protected:
  Recorded() {
    std::string name = std::filesystem::temp_directory_path() / "faultline-record-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~Recorded() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Recording> create(uint32_t cores = 1) {
    std::string error;
    auto recording = Recording::create(
        {.file = folder_ / "f.rec", .ring_bytes = kRingBytes, .cores = cores, .device = "faultline0"}, error);
    EXPECT_NE(recording, nullptr) << error;
    return recording;
  }
  static Bytes bytes_of(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static Record record(Kind kind, uint64_t time_ns, uint32_t psn, uint8_t code = 0) {
    Record one;
    one.kind = kind;
    one.time_ns = time_ns;
    one.qpn = 17;
    one.psn = psn;
    one.code = code;
    return one;
  }
  static void connect(Recording& recording) {
    record::ConnectionRow row;
    row.qpn = 17;
    row.peer_qpn = 99;
    row.gid = wire::Gid::from_ipv4(0xc6120001).bytes;
    row.peer_gid = wire::Gid::from_ipv4(0xc6120002).bytes;
    row.qp_type = 2;
    recording.ring_of_core(0).connections().add(row);
  }
  static Story story_of(const Bytes& file) {
    Story story;
    EXPECT_EQ(read_recording_story(file, story), "");
    analyse(story);
    return story;
  }

  std::filesystem::path folder_;
};

}  // namespace faultline::story::test
