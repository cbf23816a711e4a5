// SPDX-License-Identifier: BSD-3-Clause
// What people read of a failure: peer, request, facts, and what to look at.
#include "stack/status/failure_text.hpp"

#include <gtest/gtest.h>

#include "stack/status/failure_ring.hpp"

namespace faultline::status {
namespace {

FailureRecord failure(FailureCause cause) {
  FailureRecord record;
  record.cause = cause;
  record.qpn = 0x112233;
  record.is_connected = true;
  record.peer_gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0, 2};
  record.peer_qpn = 0x445566;
  record.psn = 77;
  record.status = 12;
  record.link_up = true;
  return record;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(FailureText, NamesQpPeerPsnCauseAndWhatToLookAt) {
  const std::string text = text_of(failure(FailureCause::peer_refused_access));
  EXPECT_EQ(text,
            "QP 0x112233, peer 198.18.0.2 QP 0x445566: fails at PSN 77: the peer refused the access: rkey, "
            "range or "
            "rights (peer_refused_access, vendor_err 5), status 12; look at: rkey, address and length of the "
            "request; "
            "the peer's last error names what did not match");
}

TEST(FailureText, DescribesTheRequestAndTheTries) {
  FailureRecord record = failure(FailureCause::stopped_answering);
  record.has_request = true;
  record.opcode = 4;
  record.length_bytes = 4096;
  record.remote_va = 0x7f0000001000;
  record.key = 0xab01;
  record.unanswered_packets = 3;
  record.retry_count = 7;
  record.retries_used = 7;
  record.silent_ns = 805'306'368;
  record.ack_timeout_ns = 67'108'864;
  const std::string text = text_of(record);
  EXPECT_TRUE(
      has(text,
          "; the request: READ of 4096 bytes at address 0x7f0000001000 with rkey 0xab01; no answer for "
          "805.3 ms: 7 of 7 retries are used, the ACK timeout is 67.1 ms; 3 packets are not acknowledged, "
          "the last acknowledged PSN is 76; the port's "
          "link is up"))
      << text;
  record.opcode = 2;
  EXPECT_TRUE(has(text_of(record), "SEND of 4096 bytes; no answer")) << text_of(record);
  record.psn = 0;
  EXPECT_TRUE(has(text_of(record), "the last acknowledged PSN is 16777215")) << "PSNs have 24 bits";
}

TEST(FailureText, NamesTheLocalBuffer) {
  FailureRecord record = failure(FailureCause::peer_refused_access);
  record.has_request = true;
  record.lkey = 0xcd01;
  record.local_va = 0x2000;
  record.syndrome = 0x62;
  EXPECT_TRUE(has(text_of(record),
                  "status 12, the peer's NAK has syndrome 0x62; the request: WRITE of 0 "
                  "bytes at address 0x0 with rkey 0x0, local address 0x2000 with lkey 0xcd01"))
      << text_of(record);
}

TEST(FailureText, CountsRnrRetries) {
  FailureRecord record = failure(FailureCause::receiver_not_ready);
  record.rnr_retry = 3;
  record.rnr_retries_used = 3;
  EXPECT_TRUE(has(text_of(record), "; 3 of 3 RNR retries are used")) << text_of(record);
}

TEST(FailureText, NamesTheAwaitedPage) {
  FailureRecord record = failure(FailureCause::flushed);
  EXPECT_FALSE(has(text_of(record), "awaited"));
  record.awaited_va = 0x7f0000002000;
  record.awaited_key = 0xab01;
  record.awaited_ns = 1'500'000'000;
  EXPECT_TRUE(
      has(text_of(record), "; the page at address 0x7f0000002000 with lkey 0xab01 was awaited for 1500 ms"))
      << text_of(record);
  record.nak_sent = true;
  EXPECT_TRUE(has(text_of(record), "with rkey 0xab01 was awaited")) << text_of(record);
}

TEST(FailureText, NamesTheNextHopOfASilentPeer) {
  FailureRecord record = failure(FailureCause::never_answered);
  EXPECT_FALSE(has(text_of(record), "next hop")) << "unknown";
  record.neighbour = Neighbour::unanswered;
  EXPECT_TRUE(has(text_of(record), "; the next hop answers no neighbour request")) << text_of(record);
  record.neighbour = Neighbour::reachable;
  record.neighbour_mac = {2, 0, 0, 0xab, 0, 9};
  EXPECT_TRUE(has(text_of(record), "; the next hop has answered, from MAC address 02:00:00:ab:00:09"))
      << text_of(record);
}

TEST(FailureText, APeerThatIsTheDeviceItselfIsAWrongWire) {
  FailureRecord record = failure(FailureCause::never_answered);
  record.is_loopback = true;
  EXPECT_TRUE(has(text_of(record), "the peer's address is this device's own: are both ends on one wire"));
  // Applies only if no peer answers: a program may connect a QP to itself.
  record.cause = FailureCause::peer_refused_access;
  EXPECT_FALSE(has(text_of(record), "one wire"));
}

TEST(FailureText, ARefusedRequestNamesTheAccess) {
  FailureRecord record = failure(FailureCause::refused_range);
  record.nak_sent = true;
  record.syndrome = 0x62;
  record.refused_key = 0xab01;
  record.refused_va = 0x1000;
  record.refused_length_bytes = 64;
  const std::string text = text_of(record);
  EXPECT_TRUE(has(text,
                  "fails by a request of the peer at PSN 77: the peer's access is not within the region "
                  "(refused_range, vendor_err 34), NAK with syndrome 0x62; rkey 0xab01, 64 bytes at address "
                  "0x1000; look at: "))
      << text;
}

TEST(FailureText, DroppedPacketsAreCounted) {
  FailureRecord record;
  record.cause = FailureCause::dropped_mtu;
  record.count = 12;
  EXPECT_EQ(
      text_of(record),
      "12 x packets were dropped: they are longer than the path MTU (dropped_mtu, vendor_err 71); look at: "
      "path_mtu of both QPs must be equal");
}

TEST(FailureText, EveryCauseHasALine) {
  for (const FailureCauseRow& row : failure_causes())
    for (const bool nak : {false, true}) {
      FailureRecord record = failure(row.cause);
      record.nak_sent = nak;
      const std::string text = text_of(record);
      EXPECT_TRUE(has(text, row.name) && has(text, row.text) && has(text, row.check)) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos);
    }
}

TEST(FailureRing, KeepsTheNewest) {
  FailureRing ring;
  EXPECT_EQ(ring.newest_of(1, 0), nullptr);
  for (uint32_t i = 0; i < 2 * FailureRing::kRecords; ++i) {
    FailureRecord record;
    record.qpn = i;
    record.time_ns = 1000 + i;
    ring.add(record);
  }
  EXPECT_EQ(ring.newest_of(0, 0), nullptr) << "overwritten";
  EXPECT_EQ(ring.newest_of(FailureRing::kRecords - 1, 0), nullptr) << "overwritten last";
  ASSERT_NE(ring.newest_of(FailureRing::kRecords, 0), nullptr) << "the oldest that is kept";
  ASSERT_NE(ring.newest_of(2 * FailureRing::kRecords - 1, 0), nullptr);
  FailureRecord again;
  again.qpn = FailureRing::kRecords + 3;
  again.time_ns = 5000;
  ring.add(again);
  EXPECT_EQ(ring.newest_of(again.qpn, 0)->time_ns, 5000U);
  EXPECT_EQ(ring.newest_of(again.qpn, 5001), nullptr) << "of an earlier QP with that number";
}

}  // namespace
}  // namespace faultline::status
