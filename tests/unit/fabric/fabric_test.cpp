// SPDX-License-Identifier: BSD-3-Clause
// Links and switches with frames that a test injects: times, full queues, marks, PFC, failures, and the
// conservation of frames.
#include "apps/sim/fabric/fabric.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "apps/sim/description/generators.hpp"
#include "stack/wire/packet/ecn.hpp"
#include "stack/wire/packet/frame.hpp"

namespace faultline::fabric {
namespace {

constexpr uint32_t kFrameBytes = 976;  // 1000 on a link: 800 ns at 10 Gb/s

/// Hosts that note what arrives.
class Lab final : public Hosts {
 public:
  struct Arrival {
    uint32_t host = 0;
    TimeNs time_ns = 0;
    uint32_t flow_hash = 0;
    bool is_marked = false;
  };

  explicit Lab(const Description& what)
      : description(what), fabric(description, events, *this, chaos::Random(3)) {}

  void on_frame(uint32_t host, Frame& frame, TimePs now_ps) override {
    const bool is_marked = (frame.bytes[15] & wire::kEcnMask) == wire::kEcnCongestionExperienced;
    arrivals.push_back({host, ns_of(now_ps), frame.flow_hash, is_marked});
    fabric.frames().give_back(frame);
  }
  void on_frame_sent(uint32_t /*host*/, TimePs /*now_ps*/) override {}

  void send(uint32_t from, uint32_t to, TimePs now_ps, uint32_t flow_hash = 0) {
    Frame& frame = fabric.frames().take();
    frame.length_bytes = kFrameBytes;
    frame.destination = to;
    frame.flow_hash = flow_hash;
    wire::PathHeader path;
    path.source_gid = wire::Gid::from_ipv4(0xc6120001);
    path.destination_gid = wire::Gid::from_ipv4(0xc6120002);
    path.traffic_class = wire::kEcnCapable;
    wire::PacketFields fields;
    fields.bth.opcode = wire::Opcode::rc_acknowledge;
    ASSERT_NE(wire::FrameTemplate(path).write_headers(frame.bytes, fields, 0), nullptr);
    fabric.inject(from, frame, now_ps);
  }
  /// Handles events up to a time, or all.
  void run(TimePs until_ps = kNeverPs - 1) {
    while (events.next_ps() <= until_ps) {
      const Event event = events.take();
      fabric.handle(event);
    }
  }
  [[nodiscard]] uint64_t dropped() const { return fabric.counters().dropped_frames(); }
  [[nodiscard]] uint32_t channel(const std::string& from, const std::string& to) const {
    const auto& nodes = description.topology.nodes;
    for (uint32_t i = 0; i < fabric.channels().size(); ++i)
      if (nodes[fabric.channels()[i].from].name == from && nodes[fabric.channels()[i].to].name == to)
        return i;
    return 0;
  }
  void expect_conservation() const {
    const FabricCounters& counters = fabric.counters();
    EXPECT_EQ(counters.injected_frames, counters.delivered_frames + dropped() + fabric.frames_inside());
    EXPECT_EQ(counters.injected_bytes,
              counters.delivered_bytes + counters.dropped_bytes + fabric.bytes_inside());
  }

  Description description;
  EventQueue events;
  Fabric fabric;
  std::vector<Arrival> arrivals;
};

/// `hosts` hosts at one switch, with 10 Gb/s and 1 us.
Description star(uint32_t hosts) {
  Description description;
  description.topology = make_leaf_spine(1, 1, hosts, {}, {});
  return description;
}

TEST(Fabric, DeliversAfterTheTimesOfTwoLinks) {
  Lab lab(star(2));
  lab.send(0, 1, 0);
  lab.send(0, 1, 0);
  lab.run();
  ASSERT_EQ(lab.arrivals.size(), 2U);
  EXPECT_EQ(lab.arrivals[0].host, 1U);
  EXPECT_EQ(lab.arrivals[0].time_ns, 2U * (800 + 1000));
  EXPECT_EQ(lab.arrivals[1].time_ns, 2U * (800 + 1000) + 800);
}

TEST(Fabric, DropsWhatDoesNotFitIntoAQueue) {
  Description description = star(5);
  description.switches.queue_bytes = 10 * kFrameBytes;
  Lab lab(description);
  for (uint32_t host = 1; host < 5; ++host)
    for (int i = 0; i < 20; ++i) lab.send(host, 0, 0);
  lab.run(5'000'000);
  lab.expect_conservation();
  EXPECT_GT(lab.fabric.frames_inside(), 0U);
  lab.run();
  lab.expect_conservation();
  EXPECT_EQ(lab.fabric.frames_inside(), 0U);
  const Channel& port = lab.fabric.channels()[lab.channel("leaf0", "h0")];
  // 80 frames reach the queue within 20 times, in which 19 leave; 10 stay.
  EXPECT_EQ(lab.arrivals.size(), 29U);
  EXPECT_EQ(port.dropped_frames, 51U);
  EXPECT_EQ(lab.fabric.counters().full_drops, 51U);
  EXPECT_EQ(port.lengths.most_bytes(), 10U * kFrameBytes);
}

TEST(Fabric, DropsWhatDoesNotFitIntoTheBufferOfASwitch) {
  Description description = star(6);
  description.switches.buffer_bytes = 10 * kFrameBytes;
  Lab lab(description);
  for (uint32_t host = 2; host < 6; ++host)
    for (int i = 0; i < 20; ++i) lab.send(host, host % 2, 0);
  lab.run();
  lab.expect_conservation();
  EXPECT_GT(lab.fabric.counters().full_drops, 0U);
  for (const char* receiver : {"h0", "h1"})
    EXPECT_LE(lab.fabric.channels()[lab.channel("leaf0", receiver)].lengths.most_bytes(), 10U * kFrameBytes);
}

TEST(Fabric, MarksNoneUpToKminSomeUpToKmaxAndAllAbove) {
  Description description = star(9);
  description.switches.marks = true;
  description.switches.kmin_bytes = 20 * kFrameBytes;
  description.switches.kmax_bytes = 220 * kFrameBytes;
  description.switches.pmax = 0.5;
  Lab lab(description);
  for (uint32_t host = 1; host < 9; ++host)
    for (int i = 0; i < 50; ++i) lab.send(host, 0, 0);
  lab.run();
  ASSERT_EQ(lab.arrivals.size(), 400U);
  // A frame leaves each 800 ns, in which eight arrive: the n-th finds 7/8 n in the queue, about.
  uint32_t low = 0, middle = 0, high = 0;
  for (size_t i = 0; i < 400; ++i) {
    const size_t found = i * 7 / 8;
    if (found < 18) low += lab.arrivals[i].is_marked;
    if (found > 22 && found < 218) middle += lab.arrivals[i].is_marked;
    if (found > 222) high += !lab.arrivals[i].is_marked;
  }
  EXPECT_EQ(low, 0U);
  EXPECT_EQ(high, 0U);
  EXPECT_NEAR(middle, 224 * 0.25, 25);
  EXPECT_EQ(lab.fabric.counters().marks,
            std::ranges::count_if(lab.arrivals, [](const Lab::Arrival& one) { return one.is_marked; }));
}

TEST(Fabric, MarksNothingWithoutThresholds) {
  Lab lab(star(9));
  for (uint32_t host = 1; host < 9; ++host)
    for (int i = 0; i < 50; ++i) lab.send(host, 0, 0);
  lab.run();
  EXPECT_EQ(lab.fabric.counters().marks, 0U);
}

Description pausing_star() {
  Description description = star(5);
  description.switches.pauses = true;
  description.switches.pause_on_bytes = 20 * kFrameBytes;
  description.switches.pause_off_bytes = 10 * kFrameBytes;
  description.switches.queue_bytes = 4 * 26 * kFrameBytes;
  return description;
}

TEST(Fabric, LosesNothingWithPfcAndRoomForWhatIsUnderWay) {
  Lab lab(pausing_star());
  for (uint32_t host = 1; host < 5; ++host)
    for (int i = 0; i < 100; ++i) lab.send(host, 0, 0);
  lab.run();
  lab.expect_conservation();
  EXPECT_EQ(lab.arrivals.size(), 400U);
  EXPECT_EQ(lab.dropped(), 0U);
  EXPECT_GT(lab.fabric.counters().pauses, 4U);
  // The receiver's link is never idle.
  EXPECT_EQ(lab.arrivals.back().time_ns - lab.arrivals.front().time_ns, 399U * 800);
  const Channel& paused = lab.fabric.channels()[lab.channel("h1", "leaf0")];
  EXPECT_GT(paused.paused_ps, 0U);
  EXPECT_FALSE(paused.is_paused);
  EXPECT_EQ(paused.held_bytes, 0U);
}

TEST(Fabric, LosesTheSameTrafficWithoutPfc) {
  Description description = pausing_star();
  description.switches.pauses = false;
  Lab lab(description);
  for (uint32_t host = 1; host < 5; ++host)
    for (int i = 0; i < 100; ++i) lab.send(host, 0, 0);
  lab.run();
  EXPECT_GT(lab.dropped(), 0U);
  EXPECT_EQ(lab.fabric.counters().pauses, 0U);
}

Description failing_fabric(TimeNs down_ns, TimeNs up_ns) {
  Description description;
  description.topology = make_leaf_spine(2, 2, 1, {}, {});
  description.switches.reroute_ns = 5'000;
  const Topology& topology = description.topology;
  for (uint32_t i = 0; i < topology.links.size(); ++i)
    if (topology.nodes[topology.links[i].a].name == "leaf0" &&
        topology.nodes[topology.links[i].b].name == "spine1")
      description.failures.push_back({.link = i, .down_ns = down_ns, .up_ns = up_ns});
  return description;
}

/// Returns a flow's hash that leads from leaf0 over spine1.
uint32_t hash_over_spine1(const Description& description) {
  for (uint32_t hash = 0;; ++hash) {
    Lab lab(description);
    lab.send(0, 1, 0, hash);
    lab.run(4'000'000);
    if (lab.fabric.channels()[lab.channel("leaf0", "spine1")].sent_frames != 0) return hash;
  }
}

TEST(Fabric, LosesFramesOfAFailedLinkUntilRoutesAvoidIt) {
  const Description description = failing_fabric(20'000, 60'000);
  const uint32_t hash = hash_over_spine1(description);
  Lab lab(description);
  const auto send_one = [&](TimeNs at_ns) {
    lab.run(ps_of(at_ns));
    lab.send(0, 1, ps_of(at_ns), hash);
  };
  send_one(10'000);  // arrives
  send_one(17'000);  // is on the link when it fails
  send_one(19'500);  // finds it failed
  send_one(30'000);  // takes the other spine
  send_one(70'000);  // the link is back
  lab.run();
  lab.expect_conservation();
  EXPECT_EQ(lab.arrivals.size(), 3U);
  EXPECT_EQ(lab.fabric.counters().failure_drops, 2U);
  EXPECT_EQ(lab.fabric.channels()[lab.channel("leaf0", "spine0")].sent_frames, 1U);
  EXPECT_EQ(lab.fabric.channels()[lab.channel("leaf0", "spine1")].lost_frames, 2U);
}

TEST(Fabric, LosesTheQueueOfAFailedLinkAndGoesOnWhenItReturns) {
  Description description = pausing_star();
  description.failures.push_back({.link = 0, .down_ns = 30'000, .up_ns = 200'000});  // of h0
  Lab lab(description);
  for (uint32_t host = 1; host < 5; ++host)
    for (int i = 0; i < 60; ++i) lab.send(host, 0, 0);
  lab.run(100'000'000);
  lab.expect_conservation();
  EXPECT_EQ(lab.fabric.frames_inside(), 0U);
  EXPECT_GT(lab.fabric.counters().failure_drops, 50U);
  const size_t before = lab.arrivals.size();
  lab.run(2'000'000'000);  // routes reflect the return after 1 ms
  lab.send(1, 0, 2'000'000'000);
  lab.run();
  EXPECT_EQ(lab.arrivals.size(), before + 1);
  lab.expect_conservation();
}

TEST(Fabric, SendsAFrameInItsOwnTimeThoughOneBeforeItWasLostWithTheLink) {
  Description description = star(2);
  description.failures.push_back({.link = 0, .down_ns = 100, .up_ns = 200});
  Lab lab(description);
  lab.send(0, 1, 0);  // would be sent at 800
  lab.run(300'000);
  lab.send(0, 1, 300'000);
  lab.run();
  ASSERT_EQ(lab.arrivals.size(), 1U);
  EXPECT_EQ(lab.arrivals[0].time_ns, 300U + 2 * (800 + 1000));
}

TEST(Fabric, DropsWhatHasNoRoute) {
  Description description = star(2);
  description.switches.reroute_ns = 0;
  description.failures.push_back({.link = 1, .down_ns = 0, .up_ns = kNever});
  Lab lab(description);
  lab.run(0);
  lab.send(0, 1, 1'000'000);
  lab.run();
  lab.expect_conservation();
  EXPECT_EQ(lab.fabric.counters().no_route_drops, 1U);
}

}  // namespace
}  // namespace faultline::fabric
