// SPDX-License-Identifier: BSD-3-Clause
// What stands between engine and port if the configuration names it: the model of a bad link, and the packet
// capture.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "pmd_glue/capture/capture.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "tests/unit/engine/frames.hpp"

namespace faultline::glue::test::chaos_capture_test {
namespace {

constexpr TimeNs kDelay = 300 * kMicrosecond;

StationSetup delayed(bool receive, bool transmit) {
  StationSetup setup;
  setup.chaos.link.delay_ns = kDelay;
  setup.chaos.receive = receive;
  setup.chaos.transmit = transmit;
  return setup;
}

class Chaos : public WithFrames {
 protected:
  static void deliver_request(Station& station) { station.port.deliver(arp_request(station.gid().ipv4())); }
};

TEST_F(Chaos, ASentFrameIsHeldUntilItsTime) {
  Station station(delayed(false, true));
  deliver_request(station);
  EXPECT_TRUE(station.turn());
  VirtualClock::advance(kDelay - 1);
  EXPECT_TRUE(station.turn()) << "another turn is worth while: a frame is held";
  EXPECT_TRUE(station.port.take_sent().empty());
  EXPECT_TRUE(station.engine.holds_frames_to_send());
  VirtualClock::advance(1);
  station.turn();
  EXPECT_EQ(station.port.take_sent().size(), 1U);
  EXPECT_FALSE(station.engine.holds_frames_to_send());
  EXPECT_FALSE(station.turn());
  EXPECT_EQ(station.count(&PortCounts::chaos_delayed), 1U);
}

TEST_F(Chaos, AReceivedFrameIsHeldUntilItsTime) {
  Station station(delayed(true, false));
  deliver_request(station);
  station.turn();
  VirtualClock::advance(kDelay - 1);
  EXPECT_TRUE(station.turn());
  EXPECT_EQ(station.count(&PortCounts::arp_in), 0U);
  VirtualClock::advance(1);
  station.turn();
  EXPECT_EQ(station.count(&PortCounts::arp_in), 1U);
  EXPECT_EQ(station.port.take_sent().size(), 1U);
}

TEST_F(Chaos, HeldFramesThatThePortDoesNotTakeKeepTheirOrder) {
  Station a(delayed(false, true));
  Station b("198.18.0.2/24");
  TestQp qp_a(a);
  TestQp qp_b(b);
  qp_a.connect(qp_b, b, 0);
  constexpr uint32_t kPackets = 40;
  qp_a.write(kPackets * 1024);
  a.turn();
  VirtualClock::advance(kDelay);
  uint32_t next_psn = 0;
  for (int rounds = 0; rounds < 100 && next_psn < kPackets; ++rounds) {
    a.port.room = static_cast<size_t>(rounds % 4);
    a.turn();
    for (const Frame& frame : a.port.take_sent()) ASSERT_EQ(packet_of(frame).bth.psn.value(), next_psn++);
  }
  EXPECT_EQ(next_psn, kPackets);
  EXPECT_EQ(a.count(&PortCounts::tx_dropped), 0U);
}

TEST_F(Chaos, HeldFramesForALinkThatIsDownAreDroppedWhenTheyAreDue) {
  Station station(delayed(false, true));
  deliver_request(station);
  station.turn();
  station.port.link = false;
  station.engine.release_due_frames(VirtualClock::now() + kDelay - 1);
  EXPECT_EQ(station.count(&PortCounts::tx_dropped), 0U);
  station.engine.release_due_frames(VirtualClock::now() + kDelay);
  EXPECT_EQ(station.count(&PortCounts::tx_dropped), 1U);
  EXPECT_FALSE(station.engine.holds_frames_to_send());
}

TEST_F(Chaos, LostFramesAreCountedInBothDirections) {
  StationSetup setup;
  setup.chaos.link.loss = 1;
  Station station(setup);
  deliver_request(station);
  station.engine.neighbours().resolve(wire::Gid::from_ipv4(kPeerIp), VirtualClock::now());
  station.turn();
  EXPECT_EQ(station.count(&PortCounts::chaos_lost), 2U) << "the peer's request, and the station's own";
  EXPECT_EQ(station.count(&PortCounts::arp_in), 0U);
  EXPECT_TRUE(station.port.take_sent().empty());
}

// ---- capture ----

struct Captured {
  Frame bytes;
  std::string comment;
};

/// The packets in a pcapng file: its enhanced packet blocks (draft-ietf-opsawg-pcapng, 4.3).
std::vector<Captured> read_pcapng(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const Frame bytes{std::istreambuf_iterator<char>(file), {}};
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, &bytes.at(at + 3) - 3, sizeof value);
    return value;
  };
  const auto padded = [](size_t length) { return (length + 3) / 4 * 4; };
  constexpr uint32_t kEnhancedPacket = 6;
  constexpr size_t kCapturedAt = 20, kDataAt = 28;
  std::vector<Captured> packets;
  for (size_t at = 0; at < bytes.size() && word(at + 4) != 0; at += word(at + 4)) {
    if (word(at) != kEnhancedPacket) continue;
    const auto data = bytes.begin() + static_cast<ptrdiff_t>(at + kDataAt);
    Captured packet{{data, data + static_cast<ptrdiff_t>(word(at + kCapturedAt))}, {}};
    size_t option = at + kDataAt + padded(packet.bytes.size());
    // A word has an option's code and length; opt_endofopt is 0, and opt_comment has the code 1.
    for (; word(option) != 0; option += 4 + padded(word(option) >> 16))
      if ((word(option) & 0xffff) == 1)
        packet.comment.assign(reinterpret_cast<const char*>(&bytes.at(option + 4)), word(option) >> 16);
    packets.push_back(std::move(packet));
  }
  return packets;
}

std::string comment_of(size_t counter) {
  return "counter " + std::to_string(counter);
}
std::string comment_of(transport::DropReason reason) {
  return comment_of(transport::flat_index(reason));
}
std::string comment_of(wire::ParseError error) {
  return comment_of(transport::flat_index(error));
}
std::string comment_of(uint64_t verbs::PortCounters::*member) {
  return comment_of(size_t{drop_counter(member)});
}

class CaptureFile : public Chaos {
 protected:
  void SetUp() override {
    Chaos::SetUp();
    std::string pattern = "/tmp/faultline-test-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory = pattern;
    std::string error;
    std::vector<std::string> comments;
    for (size_t i = 0; i < kDropCounters; ++i) comments.push_back(comment_of(i));
    capture = Capture::open(
        {.file = path(), .interface = "dut0", .description = "under test", .comments = comments}, error);
    ASSERT_NE(capture, nullptr) << error;
  }
  void TearDown() override { std::filesystem::remove_all(directory); }
  [[nodiscard]] std::string path() const { return directory / "file.pcapng"; }
  /// Ends the capture and returns its frames.
  std::vector<Frame> captured() {
    capture.reset();
    std::vector<Frame> frames;
    for (Captured& packet : read_pcapng(path())) frames.push_back(std::move(packet.bytes));
    return frames;
  }
  /// Ends the capture and returns its frames' comments.
  std::vector<std::string> comments() {
    capture.reset();
    std::vector<std::string> texts;
    for (Captured& packet : read_pcapng(path())) texts.push_back(std::move(packet.comment));
    return texts;
  }

  std::filesystem::path directory;
  std::unique_ptr<Capture> capture;
};

TEST_F(CaptureFile, RecordsReceivedAndSentFrames) {
  Frame request;
  std::vector<Frame> expected;
  {
    Station station(StationSetup{.capture = capture.get()});
    request = arp_request(station.gid().ipv4());
    station.port.deliver(request);
    station.turn();
    expected = station.port.take_sent();
  }
  ASSERT_EQ(expected.size(), 1U);
  expected.insert(expected.begin(), request);
  EXPECT_EQ(captured(), expected);
}

TEST_F(CaptureFile, RecordsOnlyFramesThatThePortTook) {
  std::vector<Frame> sent;
  {
    Station a(StationSetup{.capture = capture.get()});
    Station b("198.18.0.2/24");
    TestQp qp_a(a);
    TestQp qp_b(b);
    qp_a.connect(qp_b, b, 0);
    qp_a.write(5 * 1024);
    a.port.room = 2;
    a.turn();
    sent = a.port.take_sent();
    ASSERT_EQ(sent.size(), 2U);
    for (int i = 0; i < 20 && a.count(&PortCounts::tx_dropped) == 0; ++i) {
      VirtualClock::advance(kSecond);
      a.turn();
    }
    ASSERT_EQ(a.count(&PortCounts::tx_dropped), 3U);
  }
  EXPECT_EQ(captured(), sent);
}

TEST_F(CaptureFile, RecordsFramesThatStayInTheDevice) {
  {
    Station station(StationSetup{.capture = capture.get()});
    TestQp qp(station);
    qp.connect(qp, station);
    qp.post_receive();
    qp.send();
    for (int turns = 0; turns < 4; ++turns) station.turn();
    EXPECT_EQ(qp.sent(), succeeded(1));
  }
  EXPECT_EQ(opcodes_of(captured()),
            (std::vector<wire::Opcode>{wire::Opcode::rc_send_only, wire::Opcode::rc_acknowledge}));
}

constexpr uint32_t kNoQpn = 0x777777;

TEST_F(CaptureFile, SaysWhyTheCoreDroppedAFrame) {
  {
    Station station(StationSetup{.capture = capture.get()});
    Frame damaged = roce_frame(station, kNoQpn);
    damaged.back() ^= 1;
    station.port.deliver(roce_frame(station, kNoQpn));
    station.port.deliver(damaged);
    station.port.deliver(arp_request(station.gid().ipv4()));
    station.turn();
  }
  // The engine handles link protocols first. The last frame is its ARP reply.
  EXPECT_EQ(comments(), (std::vector<std::string>{"", "", comment_of(transport::DropReason::unknown_qpn),
                                                  comment_of(wire::ParseError::icrc)}));
}

TEST_F(CaptureFile, SaysWhyTheEngineDroppedAFrame) {
  {
    Station station(StationSetup{.vlan_id = 100, .capture = capture.get()});
    const auto in_vlan = [](wire::PathHeader& path) {
      path.has_vlan = true;
      path.vlan_tci = 100;
    };
    station.port.deliver(roce_frame(station, kNoQpn));
    station.port.deliver(roce_frame(station, kNoQpn, [&](wire::PathHeader& path) {
      in_vlan(path);
      path.destination_gid = wire::Gid::from_ipv4(0xc6120007);
    }));
    station.port.deliver(Frame(kBufferBytes + 1), 2'000);
    station.turn();
  }
  const std::vector<std::string> expected{comment_of(&verbs::PortCounters::other_dropped),
                                          comment_of(&verbs::PortCounters::wrong_vlan),
                                          comment_of(&verbs::PortCounters::wrong_address)};
  EXPECT_EQ(comments(), expected);
}

TEST_F(CaptureFile, SaysNothingOfFramesThatWereTaken) {
  {
    Station a(StationSetup{.capture = capture.get()});
    Station b("198.18.0.2/24");
    TestQp qp_a(a);
    TestQp qp_b(b);
    qp_a.connect(qp_b, b);
    qp_b.connect(qp_a, a);
    qp_b.write(3 * 1024);
    settle(a, b);
    EXPECT_EQ(qp_b.sent(), succeeded(1));
  }
  EXPECT_EQ(comments(), std::vector<std::string>(4)) << "three packets and an acknowledgement";
}

TEST_F(CaptureFile, SaysThatTheModelOfABadLinkLostAFrame) {
  {
    StationSetup setup{.capture = capture.get()};
    setup.chaos.link.loss = 1;
    setup.chaos.transmit = false;
    Station station(setup);
    deliver_request(station);
    station.turn();
  }
  EXPECT_EQ(comments(), std::vector{comment_of(&verbs::PortCounters::chaos_lost)});
}

TEST_F(CaptureFile, HasADuplicatedFrameOnceAndWhyItWasDropped) {
  {
    StationSetup setup{.capture = capture.get()};
    setup.chaos.link.duplicate = 1;
    setup.chaos.transmit = false;
    Station station(setup);
    station.port.deliver(roce_frame(station, kNoQpn));
    station.turn();
    EXPECT_EQ(station.transport().drops[static_cast<size_t>(transport::DropReason::unknown_qpn)], 2U);
  }
  EXPECT_EQ(comments(), std::vector{comment_of(transport::DropReason::unknown_qpn)});
}

TEST_F(CaptureFile, HasFramesThatAreHeldAtItsEnd) {
  StationSetup setup = delayed(true, false);
  setup.capture = capture.get();
  Station station(setup);
  deliver_request(station);
  station.turn();
  EXPECT_EQ(comments(), std::vector<std::string>(1));
}

TEST_F(CaptureFile, SaysWhyAFrameThatStayedInTheDeviceWasDropped) {
  {
    Station station(StationSetup{.capture = capture.get()});
    TestQp qp(station, transport::QpType::ud);
    qp.activate();
    qp.send_datagram(station.path_to(station), kNoQpn);
    for (int turns = 0; turns < 3; ++turns) station.turn();
  }
  EXPECT_EQ(comments(), std::vector{comment_of(transport::DropReason::unknown_qpn)});
}

}  // namespace
}  // namespace faultline::glue::test::chaos_capture_test
