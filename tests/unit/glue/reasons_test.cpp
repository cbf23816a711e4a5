// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/reasons.hpp"

#include <gtest/gtest.h>

namespace faultline::glue::reasons_test {
namespace {

TEST(Reasons, ManyQpsOfOnePeerAreOneLine) {
  ReasonLimit limit;
  constexpr TimeNs kStart = 5'000'000'000;
  status::FailureRecord record;
  record.cause = status::FailureCause::stopped_answering;
  record.peer_gid = {1};
  EXPECT_EQ(limit.admit_failure(record, kStart), 0U);
  record.qpn = 2;
  EXPECT_EQ(limit.admit_failure(record, kStart + 1), std::nullopt);
  EXPECT_EQ(limit.admit_failure(record, kStart + 2), std::nullopt);
  record.cause = status::FailureCause::refused_key;
  EXPECT_EQ(limit.admit_failure(record, kStart + 3), 2U) << "another cause";
  record.peer_gid = {2};
  EXPECT_EQ(limit.admit_failure(record, kStart + 4), 0U) << "another peer";
  EXPECT_EQ(limit.admit_failure(record, kStart + 2'000'000'000), 0U) << "a second later";
}

TEST(Reasons, AFloodIsHeldBackAndCounted) {
  ReasonLimit limit;
  constexpr TimeNs kStart = 5'000'000'000;
  uint64_t admitted = 0;
  for (int i = 0; i < 1000; ++i) admitted += limit.admit(kStart).has_value() ? 1 : 0;
  EXPECT_EQ(admitted, ReasonLimit::kLinesPerSecond);
  const auto later = limit.admit(kStart + 1'000'000'000);
  ASSERT_TRUE(later.has_value());
  EXPECT_EQ(*later, 1000 - ReasonLimit::kLinesPerSecond);
}

TEST(LogLevel, IsOneOfTheLevelsOrALineNamesThem) {
  std::string complaint;
  EXPECT_EQ(parse_log_level(nullptr, complaint), std::nullopt);
  EXPECT_EQ(parse_log_level("debug", complaint), "debug");
  EXPECT_EQ(complaint, "");
  EXPECT_EQ(parse_log_level("loud", complaint), std::nullopt);
  EXPECT_EQ(complaint,
            "faultline: FAULTLINE_LOG: \"loud\" is not one of trace, debug, info, warn, err, critical, off");
}

}  // namespace
}  // namespace faultline::glue::reasons_test
