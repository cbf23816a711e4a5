// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "stack/chaos/fault_model.hpp"
#include "stack/chaos/link_model.hpp"
#include "stack/wire/packet/ecn.hpp"
#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::chaos {
namespace {

TEST(LinkModel, RatiosAreMetAndASeedRepeatsItself) {
  const LinkModelConfig config{.loss = 0.01, .duplicate = 0.1, .corrupt = 0.5, .reorder = 0.2, .seed = 7};
  LinkModel one(config);
  LinkModel two(config);
  unsigned lost = 0, twice = 0, damaged = 0, late = 0;
  constexpr unsigned kFrames = 100'000;
  for (unsigned i = 0; i < kFrames; ++i) {
    const Verdict a = one.next(100);
    const Verdict b = two.next(100);
    ASSERT_EQ(a.drop, b.drop);
    ASSERT_EQ(a.delay_ns, b.delay_ns);
    ASSERT_EQ(a.bit, b.bit);
    ASSERT_LT(a.bit, 800U);
    lost += a.drop;
    twice += a.duplicate;
    damaged += a.corrupt;
    late += a.delay_ns == config.reorder_delay_ns;
  }
  EXPECT_NEAR(lost, kFrames * 0.01, 200);
  EXPECT_NEAR(twice, kFrames * 0.1, 1000);
  EXPECT_NEAR(damaged, kFrames * 0.5, 2000);
  EXPECT_NEAR(late, kFrames * 0.2, 2000);
}

TEST(LinkModel, AHarmlessOneLeavesFramesAlone) {
  LinkModel model({});
  EXPECT_TRUE(model.config().harmless());
  for (int i = 0; i < 1000; ++i) {
    const Verdict verdict = model.next(64);
    EXPECT_FALSE(verdict.drop || verdict.duplicate || verdict.corrupt || verdict.mark ||
                 verdict.delay_ns != 0);
  }
}

std::vector<uint8_t> frame_with(uint8_t traffic_class, bool ipv6, bool vlan) {
  wire::PathHeader path;
  path.source_gid = wire::Gid::from_ipv4(0xc6120001);
  path.destination_gid = wire::Gid::from_ipv4(0xc6120002);
  if (ipv6) path.source_gid.bytes[0] = path.destination_gid.bytes[0] = 0x20;
  path.traffic_class = traffic_class;
  path.has_vlan = vlan;
  path.vlan_tci = 100;
  const wire::FrameTemplate frame_template(path);
  wire::PacketFields fields;
  fields.bth.opcode = wire::Opcode::rc_acknowledge;
  std::vector<uint8_t> frame(frame_template.frame_bytes(fields.bth.opcode, 0));
  EXPECT_NE(frame_template.write_headers(frame, fields, 0), nullptr);
  EXPECT_EQ(frame_template.seal(frame, fields.bth.opcode, 0), frame.size());
  return frame;
}

TEST(CongestionExperienced, IsSetWhereTheSenderCanTakeItAndThePacketStaysRight) {
  for (const bool ipv6 : {false, true}) {
    for (const bool vlan : {false, true}) {
      std::vector<uint8_t> frame = frame_with(0xb8 | wire::kEcnCapable, ipv6, vlan);
      EXPECT_TRUE(wire::mark_congestion_experienced(frame));
      wire::Packet packet;
      ASSERT_EQ(wire::parse(frame, packet), wire::ParseError::none);
      EXPECT_EQ(packet.ecn, wire::kEcnCongestionExperienced);
      EXPECT_EQ(packet.traffic_class(), 0xb8 | wire::kEcnCongestionExperienced);
      EXPECT_TRUE(wire::icrc_matches(packet));
      std::vector<uint8_t> incapable = frame_with(0xb8, ipv6, vlan);
      EXPECT_FALSE(wire::mark_congestion_experienced(incapable));
    }
  }
  std::vector<uint8_t> arp(42, 0);
  arp[12] = 8;
  arp[13] = 6;
  EXPECT_FALSE(wire::mark_congestion_experienced(arp));
  for (size_t length = 0; length < 40; ++length) {
    std::vector<uint8_t> cut = frame_with(2, false, false);
    cut.resize(length);
    cut.shrink_to_fit();
    static_cast<void>(wire::mark_congestion_experienced(cut));
  }
}

class InstantMemory final : public odp::MemoryAccess {
 public:
  odp::Outcome check(const odp::Target&, uint64_t, uint64_t) override { return odp::Outcome::done; }
  odp::Outcome probe(const odp::Target&, uint64_t, uint64_t) override { return odp::Outcome::done; }
  odp::Outcome write(const odp::Target&, uint64_t, std::span<const uint8_t>) override {
    return odp::Outcome::done;
  }
  odp::Outcome read(const odp::Target&, uint64_t, std::span<uint8_t>) override { return odp::Outcome::done; }
  odp::Outcome read_with_crc(const odp::Target&, uint64_t, std::span<uint8_t>, uint32_t&) override {
    return odp::Outcome::done;
  }
  odp::Outcome atomic(const odp::Target&, uint64_t, const odp::AtomicRequest&, uint64_t&) override {
    return odp::Outcome::done;
  }
  odp::Outcome flush(const odp::Target&, uint64_t, uint64_t, odp::FlushKind) override {
    return odp::Outcome::done;
  }
  bool range_of(odp::Key, uint64_t&, uint64_t&) override { return false; }
  odp::Outcome bind_window(const odp::WindowBinding&) override { return odp::Outcome::done; }
  odp::Outcome invalidate(odp::Key, odp::ProtectionDomain, uint32_t, bool) override {
    return odp::Outcome::done;
  }
  bool request_fault(const odp::FaultRequest& request) override {
    if (answers.size() == room) return false;
    answers.push_back({request.waiter, odp::Outcome::done});
    return true;
  }
  size_t take_resolutions(std::span<odp::Resolution> out) override {
    size_t taken = 0;
    while (taken < out.size() && !answers.empty()) {
      out[taken++] = answers.front();
      answers.erase(answers.begin());
    }
    return taken;
  }
  std::vector<odp::Resolution> answers;
  size_t room = ~size_t{0};
};

odp::FaultRequest fault_of(uint64_t waiter) {
  odp::FaultRequest request;
  request.waiter = {waiter};
  return request;
}

TEST(FaultModel, HoldsFaultsBackAndFailsSome) {
  InstantMemory memory;
  FaultModel model({.delay_ns = 1000, .failure = 0.25, .seed = 3}, memory);
  std::array<odp::Resolution, 64> out;
  unsigned failed = 0;
  constexpr unsigned kFaults = 4000;
  for (unsigned i = 0; i < kFaults; ++i) {
    const uint64_t now = 10'000 * i;
    model.advance(now);
    ASSERT_TRUE(model.request_fault(fault_of(i)));
    model.advance(now + 999);
    EXPECT_TRUE(memory.answers.empty()) << "memory was asked, and its page is there for others to find";
    EXPECT_EQ(model.take_resolutions(out), 0U);
    EXPECT_EQ(model.next_deadline(), now + 1000);
    model.advance(now + 1000);
    ASSERT_EQ(model.take_resolutions(out), 1U);
    EXPECT_EQ(out[0].waiter.bits, i);
    failed += out[0].outcome == odp::Outcome::violation;
    EXPECT_EQ(model.next_deadline(), ~uint64_t{0});
  }
  EXPECT_NEAR(failed, kFaults * 0.25, 200);
}

TEST(FaultModel, KeepsWhatMemoryHasNoRoomForAndRefusesWhatItHasNone) {
  InstantMemory memory;
  FaultModel model({.delay_ns = 10}, memory);
  uint64_t asked = 0;
  while (model.request_fault(fault_of(asked))) ++asked;
  EXPECT_GE(asked, 1024U);
  memory.room = 5;
  model.advance(10);
  EXPECT_EQ(memory.answers.size(), 5U);
  EXPECT_LE(model.next_deadline(), 10U);
  memory.room = ~size_t{0};
  model.advance(11);
  ASSERT_EQ(memory.answers.size(), asked);
  for (uint64_t i = 0; i < asked; ++i) EXPECT_EQ(memory.answers[i].waiter.bits, i);
}

}  // namespace
}  // namespace faultline::chaos
