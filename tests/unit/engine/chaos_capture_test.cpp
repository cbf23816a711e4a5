// SPDX-License-Identifier: BSD-3-Clause
// What stands between engine and port if the configuration names it: the model of a bad link, and the packet
// capture.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "pmd_glue/engine/capture.hpp"
#include "tests/unit/engine/frames.hpp"

namespace faultline::glue::test {
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

/// The frames in a pcapng file: its enhanced packet blocks (draft-ietf-opsawg-pcapng, 4.3).
std::vector<Frame> read_pcapng(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const Frame bytes{std::istreambuf_iterator<char>(file), {}};
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, &bytes.at(at + 3) - 3, sizeof value);
    return value;
  };
  constexpr uint32_t kEnhancedPacket = 6;
  constexpr size_t kCapturedAt = 20, kDataAt = 28;
  std::vector<Frame> frames;
  for (size_t at = 0; at < bytes.size() && word(at + 4) != 0; at += word(at + 4)) {
    if (word(at) != kEnhancedPacket) continue;
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(at + kDataAt);
    frames.emplace_back(begin, begin + static_cast<ptrdiff_t>(word(at + kCapturedAt)));
  }
  return frames;
}

class CaptureFile : public Chaos {
 protected:
  void SetUp() override {
    Chaos::SetUp();
    std::string pattern = "/tmp/faultline-test-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory = pattern;
    std::string error;
    capture = Capture::open(path(), 0, error);
    ASSERT_NE(capture, nullptr) << error;
  }
  void TearDown() override { std::filesystem::remove_all(directory); }
  [[nodiscard]] std::string path() const { return directory / "file.pcapng"; }
  /// Ends the capture and returns its frames.
  std::vector<Frame> captured() {
    capture.reset();
    return read_pcapng(path());
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

}  // namespace
}  // namespace faultline::glue::test
