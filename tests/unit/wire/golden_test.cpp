// SPDX-License-Identifier: BSD-3-Clause
// Every packet that Linux sent: parsed, its ICRC verified, and rebuilt byte for byte from its meaning.
#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/icrc.hpp"
#include "tests/unit/wire/capture.hpp"
#include "tests/unit/wire/meaning.hpp"

namespace faultline::wire::test::golden_test {
namespace {

using Counts = std::map<std::string, int>;

/// Reads INDEX.txt: file name -> packets by opcode, as an independent program counted them.
std::map<std::string, Counts> read_index() {
  std::map<std::string, Counts> index;
  std::ifstream file(golden_directory() / "INDEX.txt");
  for (std::string line; std::getline(file, line);) {
    Counts& counts = index[line.substr(0, line.find(':'))];
    std::istringstream words(line.substr(line.rfind(": ") + 2));
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      counts[word.substr(0, equals)] = std::stoi(word.substr(equals + 1));
    }
  }
  return index;
}

/// Returns the opcode's name, with the syndrome of an acknowledgement in the form of INDEX.txt.
std::string index_name(const Packet& packet) {
  std::string name(packet.info->name);
  if (packet.info->operation != Operation::acknowledge) return name;
  const uint8_t syndrome = packet.aeth().syndrome;
  switch (syndrome & kAethKindMask) {
    case kAethAck:
      return name;
    case kAethRnrNak:
      return name + "(RNR)";
    case kAethNak:
      return name + "(NAK" + std::to_string(syndrome & kAethValueMask) + ")";
    default:
      return name + "(?)";
  }
}

class Golden : public testing::TestWithParam<std::filesystem::path> {
 protected:
  const std::vector<Frame> frames_ = read_capture(GetParam());
};

TEST_P(Golden, ParsesAndCountsAsTheIndexSays) {
  Counts counts;
  for (const Frame& frame : frames_) {
    if (classify(frame) != FrameKind::roce) continue;
    Packet packet;
    ASSERT_EQ(name_of(parse(frame, packet)), "none");
    ++counts[index_name(packet)];
  }
  EXPECT_EQ(counts, read_index().at(GetParam().filename()));
}

TEST_P(Golden, IcrcIsRightOrRxesOwnForFlush) {
  for (const Frame& frame : frames_) {
    if (classify(frame) != FrameKind::roce) continue;
    Packet packet;
    ASSERT_EQ(parse(frame, packet), ParseError::none);
    const bool flush = packet.info->operation == Operation::flush;
    EXPECT_EQ(icrc_matches(packet), !flush) << packet.info->name;
    EXPECT_EQ(has_rxe_flush_icrc(packet), flush) << packet.info->name;
  }
}

TEST_P(Golden, IsRebuiltFromItsMeaning) {
  for (const Frame& frame : frames_) {
    if (classify(frame) != FrameKind::roce) continue;
    Packet packet;
    ASSERT_EQ(parse(frame, packet), ParseError::none);
    Frame rebuilt = rebuild(packet);
    if (packet.info->operation == Operation::flush) {
      Packet ours;
      ASSERT_EQ(parse(rebuilt, ours), ParseError::none);
      EXPECT_TRUE(icrc_matches(ours));
      std::copy(frame.end() - kIcrcBytes, frame.end(), rebuilt.end() - kIcrcBytes);
    }
    EXPECT_EQ(rebuilt, frame) << packet.info->name;
  }
}

TEST_P(Golden, PassesTheFuzzersOracle) {
  for (const Frame& frame : frames_) EXPECT_EQ(check_parse(frame), "");
}

INSTANTIATE_TEST_SUITE_P(Captures, Golden, testing::ValuesIn(golden_captures()),
                         [](const auto& capture) { return capture.param.stem().string(); });

TEST(GoldenSet, IsTheOneThatTheIndexLists) {
  const auto index = read_index();
  EXPECT_GE(index.size(), 50U);
  for (const auto& path : golden_captures()) EXPECT_TRUE(index.contains(path.filename())) << path;
  EXPECT_EQ(golden_captures().size(), index.size());
}

TEST(GoldenSet, FlushMeansWhatTheScenarioAsked) {
  std::vector<Feth> feth;
  std::vector<uint32_t> length_bytes;
  for (const Frame& frame : read_capture(golden_directory() / "v_flush.pcap")) {
    Packet packet;
    if (parse(frame, packet) != ParseError::none || packet.info->operation != Operation::flush) continue;
    feth.push_back(packet.feth());
    length_bytes.push_back(packet.reth().length_bytes);
  }
  ASSERT_EQ(feth.size(), 2U);
  // Global visibility of a range of 2000 bytes, then of the whole region.
  EXPECT_EQ(feth[0].placement_type, 1);
  EXPECT_EQ(feth[0].selectivity, 0);
  EXPECT_EQ(length_bytes[0], 2000U);
  EXPECT_EQ(feth[1].placement_type, 1);
  EXPECT_EQ(feth[1].selectivity, 1);
}

}  // namespace
}  // namespace faultline::wire::test::golden_test
