// SPDX-License-Identifier: BSD-3-Clause
// Packets that a device drops are failures of its peers: one record for each reason, at most once a second.
#include "pmd_glue/status/failure_log.hpp"

#include <gtest/gtest.h>

namespace faultline::glue {
namespace {

using status::FailureCause;
using transport::DropReason;

constexpr TimeNs kStart = 5'000'000'000;
constexpr TimeNs kSecond = 1'000'000'000;

class Drops : public ::testing::Test {
 protected:
  void drop(DropReason reason, uint64_t count) { counters_.drops[static_cast<size_t>(reason)] += count; }
  [[nodiscard]] const status::FailureRecord& newest() const {
    return log_.ring().at(log_.ring().count() - 1);
  }
  transport::CoreCounters counters_{};
  FailureLog log_;
};

TEST_F(Drops, EachReasonHasItsCause) {
  constexpr std::pair<DropReason, FailureCause> kPairs[] = {
      {DropReason::unknown_qpn, FailureCause::dropped_unknown_qpn},
      {DropReason::wrong_service, FailureCause::dropped_wrong_service},
      {DropReason::qp_state, FailureCause::dropped_qp_state},
      {DropReason::pkey, FailureCause::dropped_pkey},
      {DropReason::qkey, FailureCause::dropped_qkey},
      {DropReason::source_address, FailureCause::dropped_source},
      {DropReason::destination_address, FailureCause::dropped_destination},
      {DropReason::path_mtu, FailureCause::dropped_mtu},
      {DropReason::payload_rule, FailureCause::dropped_length},
      {DropReason::ud_too_long, FailureCause::dropped_too_long},
      {DropReason::access, FailureCause::dropped_access},
      {DropReason::no_receive_wqe, FailureCause::dropped_no_receive},
      {DropReason::stale_request, FailureCause::dropped_stale},
  };
  for (const auto& [reason, cause] : kPairs) {
    drop(reason, 3);
    log_.note_drops(counters_, kStart);
    EXPECT_EQ(newest().cause, cause);
    EXPECT_EQ(newest().count, 3U);
    EXPECT_EQ(newest().time_ns, kStart);
  }
  EXPECT_EQ(log_.ring().count(), std::size(kPairs));
  counters_.parse_errors[static_cast<size_t>(wire::ParseError::icrc)] = 2;
  log_.note_drops(counters_, kStart);
  EXPECT_EQ(newest().cause, FailureCause::dropped_icrc);
}

TEST_F(Drops, NormalOnesAreNone) {
  for (const DropReason reason : {DropReason::duplicate, DropReason::out_of_sequence, DropReason::stale_ack,
                                  DropReason::own_multicast}) {
    drop(reason, 5);
    log_.note_drops(counters_, kStart);
  }
  EXPECT_EQ(log_.ring().count(), 0U);
}

TEST_F(Drops, AFloodIsOneRecordASecond) {
  for (TimeNs now = kStart; now < kStart + kSecond; now += kSecond / 100) {
    drop(DropReason::unknown_qpn, 1000);
    log_.note_drops(counters_, now);
  }
  EXPECT_EQ(log_.ring().count(), 1U);
  log_.note_drops(counters_, kStart + kSecond);
  ASSERT_EQ(log_.ring().count(), 2U);
  EXPECT_EQ(newest().count, 99'000U) << "all that were dropped since the first record";
}

}  // namespace
}  // namespace faultline::glue
