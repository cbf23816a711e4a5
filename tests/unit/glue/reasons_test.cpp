// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/reasons.hpp"

#include <gtest/gtest.h>

namespace faultline::glue {
namespace {

transport::QpFailure failure() {
  transport::QpFailure failure;
  failure.qpn = 0x112233;
  failure.is_connected = true;
  failure.peer = wire::Gid::from_ipv4(0xc6120002);
  failure.peer_qpn = 0x445566;
  failure.psn = 77;
  failure.status = transport::CompletionStatus::retry_exceeded;
  return failure;
}

TEST(Reasons, AQpThatFailsNamesPeerPsnAndStatus) {
  EXPECT_EQ(text_of(failure()),
            "QP 0x112233, peer 198.18.0.2 QP 0x445566: fails at PSN 77: no answer from the peer, retry_cnt "
            "is used up (status 12); 0 packets are not acknowledged, retry_cnt is 0, the timeout 0 ms");
}

TEST(Reasons, AFailedRequestIsDescribed) {
  transport::QpFailure failed = failure();
  failed.has_request = true;
  failed.opcode = transport::SendOpcode::rdma_read;
  failed.length_bytes = 4096;
  failed.remote_va = 0x7f0000001000;
  failed.rkey = 0xab01;
  failed.unanswered_packets = 3;
  failed.retry_count = 7;
  failed.ack_timeout_ns = 67'108'864;
  failed.rnr_retry = 6;
  const std::string silent = text_of(failed);
  EXPECT_TRUE(
      silent.ends_with("(status 12); the request: READ of 4096 bytes at address 0x7f0000001000 with rkey "
                       "0xab01; 3 packets are not acknowledged, retry_cnt is 7, the timeout 67.1 ms"))
      << silent;
  failed.status = transport::CompletionStatus::remote_access;
  EXPECT_TRUE(text_of(failed).ends_with("with rkey 0xab01")) << text_of(failed);
  failed.opcode = transport::SendOpcode::send;
  failed.status = transport::CompletionStatus::rnr_retry_exceeded;
  EXPECT_TRUE(text_of(failed).ends_with("(status 13); the request: SEND of 4096 bytes; rnr_retry is 6"))
      << text_of(failed);
}

TEST(Reasons, APeerThatIsTheDeviceItselfIsAWrongWire) {
  transport::QpFailure own = failure();
  own.is_loopback = true;
  EXPECT_NE(text_of(own).find("the peer's address is this device's own: are both ends on one wire"),
            std::string::npos);
  // Applies only if no peer answers: a program may connect a QP to itself.
  own.status = transport::CompletionStatus::remote_access;
  EXPECT_EQ(text_of(own).find("one wire"), std::string::npos);
}

TEST(Reasons, ANakNamesItsSyndrome) {
  transport::QpFailure nak = failure();
  nak.nak_sent = true;
  nak.syndrome = 0x62;
  EXPECT_EQ(text_of(nak),
            "QP 0x112233, peer 198.18.0.2 QP 0x445566: fails by a request of the peer at PSN 77: remote "
            "access error "
            "(NAK, syndrome 0x62)");
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
}  // namespace faultline::glue
