// SPDX-License-Identifier: BSD-3-Clause
// Programs that share the switch's uplink, a DPDK ring from which the test takes so many frames a turn.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <rte_ring.h>

#include "apps/switch/frame_switch.hpp"
#include "pmd_glue/direct/shared_ring.hpp"
#include "pmd_glue/ports/ethdev_port.hpp"
#include "tests/unit/direct/direct_frames.hpp"
#include "tests/unit/engine/eal_pool.hpp"

namespace faultline::glue::test::uplink_share_test {
namespace {

using switching::FrameSwitch;
using switching::PortIndex;

constexpr size_t kShortBytes = 64;
constexpr size_t kLongBytes = 4'000;
constexpr int64_t kOverheadBytes = 24;  // preamble, checksum, gap
constexpr int64_t kAll = 10'000'000;
constexpr TimeNs kTurnNs = 10'000;

Config config_with_ring() {
  Config config;
  config.path = "test";
  config.eal.memory_mib = 64;
  config.devices.resize(1);
  DeviceConfig& uplink = config.devices[0];
  uplink.name = "share";
  uplink.port.kind = PortKind::ring;
  uplink.port.wire = "share";
  return config;
}

UniqueFd copy_of(int fd) {
  return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}
UniqueFd new_event() {
  return UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

/// A program's end of its ring to the switch. It always has more to send than the ring holds, or `a_turn`
/// frames.
struct Program {
  SwitchGrant grant;
  PortIndex port = 0;
  std::unique_ptr<Inbox> inbox = Inbox::create();
  UniqueFd memory = create_sealed_memory("seat", kSeatBytes);
  std::unique_ptr<SharedRing> ring;
  size_t frame_bytes = kLongBytes;
  size_t a_turn = 64;
  uint64_t posted_bytes = 0;

  void post() {
    static const SwitchGrant elsewhere = grant_of(900);
    Bytes bytes = roce_frame(grant, elsewhere, 1);
    bytes.resize(std::max(bytes.size(), frame_bytes));
    for (size_t i = 0; i < a_turn; ++i) {
      rte_mbuf* frame = mbuf_of(pool(), bytes);
      ASSERT_NE(frame, nullptr);
      if (ring->transmit({&frame, 1}) == 1) {
        posted_bytes += bytes.size();
        continue;
      }
      rte_pktmbuf_free(frame);
      return;
    }
  }
};

class UplinkShare : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(frames_, nullptr);
    std::string error;
    ASSERT_TRUE(switch_.open_uplink(config_.devices[0], error)) << error;
    link_ = rte_ring_lookup(own_name("fl_share_ab0").c_str());
    ASSERT_NE(link_, nullptr);
  }
  void TearDown() override { take(kAll); }

  Program& attach(size_t frame_bytes, size_t a_turn = 64) {
    Program& program = *programs_.emplace_back(std::make_unique<Program>());
    program.frame_bytes = frame_bytes;
    program.a_turn = a_turn;
    std::string error;
    program.port = switch_.take_port({}, error).value();
    EXPECT_TRUE(switch_.begin_ring(program.port, program.memory.get(),
                                   Inbox::adopt(copy_of(program.inbox->memory()), new_event())));
    switch_.with_stations([&](switching::StationTable& stations) {
      EXPECT_EQ(stations.attach(program.port, {}, 1, program.grant, error), 0) << error;
    });
    program.ring = SharedRing::begin(program.memory.get(), SharedRing::kSeat, kSideOfProcess,
                                     Inbox::adopt(copy_of(inbox_->memory()), new_event()), program.port);
    EXPECT_NE(program.ring, nullptr);
    return program;
  }
  /// Takes frames from the link as long as it has bytes left, and counts them by sender.
  void take(int64_t link_bytes) {
    link_bytes_ = std::min(link_bytes_ + link_bytes, link_bytes);
    void* frame = nullptr;
    while (link_bytes_ > 0 && rte_ring_dequeue(link_, &frame) == 0) {
      const Bytes bytes = take_bytes(static_cast<rte_mbuf*>(frame));
      link_bytes_ -= static_cast<int64_t>(bytes.size()) + kOverheadBytes;
      for (const auto& program : programs_)
        if (std::equal(program->grant.mac.begin(), program->grant.mac.end(), bytes.begin() + 6))
          arrived_bytes_[program->port] += bytes.size();
    }
  }
  /// `link_bytes`: what the link sends in a turn.
  void run(int turns, int64_t link_bytes) {
    for (int turn = 0; turn < turns; ++turn) {
      for (const auto& program : programs_) program->post();
      now_ += kTurnNs;
      switch_.turn(now_);
      take(link_bytes);
    }
  }
  [[nodiscard]] double arrived(const Program& program) {
    return static_cast<double>(arrived_bytes_[program.port]);
  }

  rte_mempool* const frames_ = pool();  ///< first: EAL must run before the switch is made
  const Config config_ = config_with_ring();
  std::unique_ptr<Inbox> inbox_ = Inbox::create();
  FrameSwitch switch_{config_, *inbox_};
  std::vector<std::unique_ptr<Program>> programs_;
  rte_ring* link_ = nullptr;
  int64_t link_bytes_ = 0;
  std::map<PortIndex, uint64_t> arrived_bytes_;
  TimeNs now_ = 1'000'000'000;
};

TEST_F(UplinkShare, ProgramsThatPostWithoutEndHaveEqualShares) {
  Program& one = attach(kLongBytes);
  Program& other = attach(kLongBytes);
  Program& third = attach(kLongBytes / 3);
  run(4'000, 5 * kLongBytes);
  EXPECT_NEAR(arrived(one), arrived(other), arrived(one) / 20);
  EXPECT_NEAR(arrived(one), arrived(third), arrived(one) / 20);
  EXPECT_EQ(switch_.counters().full + switch_.counters().crowded, 0U);
}

TEST_F(UplinkShare, AFloodTakesNothingOfWhatAnotherPostsWithinItsShare) {
  for (const size_t flood_bytes : {kLongBytes, kShortBytes}) {
    Program& flood = attach(flood_bytes);
    Program& modest = attach(kLongBytes, 2);
    // Of five long frames a turn, two are the modest program's. First the link's own queue fills.
    run(500, 5 * (kLongBytes + kOverheadBytes));
    modest.posted_bytes = 0;
    arrived_bytes_.clear();
    run(2'000, 5 * (kLongBytes + kOverheadBytes));
    EXPECT_GE(arrived(modest), 0.98 * static_cast<double>(modest.posted_bytes)) << flood_bytes;
    EXPECT_GE(modest.posted_bytes, 1'990U * 2 * kLongBytes);
    EXPECT_GT(arrived(flood), 0.0);
    EXPECT_EQ(switch_.counters().full + switch_.counters().crowded, 0U);
    for (const auto& program : programs_) switch_.leave(program->port);
    take(kAll);
    programs_.clear();
    arrived_bytes_.clear();
  }
}

TEST_F(UplinkShare, AProgramsRateHoldsForItAlone) {
  switch_.set_rates({.program_mbps = 800});
  Program& one = attach(kLongBytes);
  Program& modest = attach(kShortBytes, 1);
  run(5'000, kAll);
  // 50 ms at 100 MB/s.
  EXPECT_NEAR(arrived(one), 5'000'000.0, 600'000.0);
  EXPECT_GE(arrived(modest), 0.99 * static_cast<double>(modest.posted_bytes));
  switching::SwitchStatus status;
  status.seats = {{.port = one.port, .grant = {}, .counters = {}},
                  {.port = modest.port, .grant = {}, .counters = {}}};
  switch_.describe(status);
  EXPECT_GT(status.seats[0].counters.rate_limited, 100U);
  EXPECT_EQ(status.seats[1].counters.rate_limited, 0U);
  EXPECT_EQ(status.counters.rate_limited, status.seats[0].counters.rate_limited);
  ASSERT_TRUE(status.uplink);
  EXPECT_EQ(status.uplink->port, "ring:share");
}

TEST_F(UplinkShare, AnUplinkRateIsShared) {
  switch_.set_rates({.uplink_mbps = 800});
  Program& one = attach(kLongBytes);
  Program& other = attach(kLongBytes / 2);
  run(5'000, kAll);
  EXPECT_NEAR(arrived(one) + arrived(other), 5'000'000.0, 600'000.0);
  EXPECT_NEAR(arrived(one), arrived(other), arrived(one) / 10);
}

// A port whose link is up and that takes nothing must not stop what programs send to others for ever.
TEST_F(UplinkShare, AStuckUplinkLosesWhatWaits) {
  attach(kLongBytes);
  run(500, 0);
  EXPECT_EQ(switch_.counters().full, 0U);
  for (int look = 0; look < 3; ++look) {
    now_ += FrameSwitch::kLookNs;
    switch_.look_after(now_);
    run(1, 0);
  }
  EXPECT_GT(switch_.counters().full, 0U);
}

}  // namespace
}  // namespace faultline::glue::test::uplink_share_test
