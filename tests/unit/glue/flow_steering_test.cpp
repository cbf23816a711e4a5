// SPDX-License-Identifier: BSD-3-Clause
// Which core of a device gets the frames of its QPs, on a model NIC that hashes them.
#include "pmd_glue/device/flow_steering.hpp"

#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "pmd_glue/device/running_device.hpp"
#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "stack/transport/qp/init.hpp"
#include "stack/wire/link/flow_hash.hpp"
#include "stack/wire/packet/frame.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/glue/model_nic.hpp"

namespace faultline::test::flow_steering_test {
namespace {

constexpr uint32_t kCores = 2;

/// The frames of one QP, as the NIC and the engines see them.
struct Flow {
  uint32_t hash;
  uint32_t owner;
};

class Steering : public testing::Test {
 protected:
  void SetUp() override {
    config.path = "nic.toml";
    std::string failure;
    ASSERT_TRUE(glue::start_eal(config, failure)) << failure;
    device.name = "nic0";
    device.port.kind = glue::PortKind::pci;
    device.lcores = {0, 1};
    open({});
  }
  void TearDown() override {
    steering.reset();
    hand_over.reset();
    port.reset();
    nic.reset();
  }

  void open(const NicTraits& traits) {
    TearDown();
    nic = std::make_unique<ModelNic>(traits);
    device.port.address = nic->name();
    config.devices = {device};
    std::string error;
    port = glue::EthernetPort::open(config, device, error);
    ASSERT_NE(port, nullptr) << error;
    glue::RssTable* const table = port->flow_table();
    if (table == nullptr) return;
    hand_over = glue::HandOver::create(port->id(), kCores, table->entry_count());
    ASSERT_NE(hand_over, nullptr);
    steering = std::make_unique<glue::FlowSteering>(*port, *table, *hand_over);
  }

  /// Peers choose source ports; the transport's rule names the owner of a QPN.
  [[nodiscard]] std::vector<Flow> make_flows(size_t count, uint32_t seed) const {
    std::mt19937 random(seed);
    std::vector<Flow> flows;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t qpn = random() & 0xffffff;
      const auto source_port = static_cast<uint16_t>(0xc000 | (random() & 0x3fff));
      const std::array<uint8_t, 12> tuple{198,
                                          18,
                                          0,
                                          2,
                                          198,
                                          18,
                                          0,
                                          1,
                                          static_cast<uint8_t>(source_port >> 8),
                                          static_cast<uint8_t>(source_port),
                                          0x12,
                                          0xb7};
      flows.push_back(
          {wire::toeplitz_hash(port->flow_table()->key(), tuple), transport::owner_of(qpn, kCores)});
    }
    return flows;
  }

  /// Receives frames of each flow; returns the share that came to the owner of its QP.
  double receive(const std::vector<Flow>& flows, unsigned rounds) {
    size_t right = 0;
    for (unsigned round = 0; round < rounds; ++round)
      for (const Flow& flow : flows) {
        const uint32_t core = port->receiver_of(nic->queue_of(flow.hash));
        hand_over->votes(core)->count(flow.hash, flow.owner);
        if (core == flow.owner) ++right;
      }
    return static_cast<double>(right) / static_cast<double>(rounds * flows.size());
  }

  glue::Config config;
  glue::DeviceConfig device;
  std::unique_ptr<ModelNic> nic;
  std::unique_ptr<glue::EthernetPort> port;
  std::unique_ptr<glue::HandOver> hand_over;
  std::unique_ptr<glue::FlowSteering> steering;
};

TEST_F(Steering, BringsFramesToTheOwnersOfTheirQps) {
  double before = 0;
  double after = 0;
  constexpr uint32_t kFabrics = 20;
  for (uint32_t fabric = 0; fabric < kFabrics; ++fabric) {
    open({});
    const std::vector<Flow> flows = make_flows(16, fabric);
    before += receive(flows, 100);
    for (unsigned check = 0; check < 10; ++check) {
      static_cast<void>(steering->update());
      static_cast<void>(receive(flows, 100));
    }
    after += receive(flows, 100);
  }
  RecordProperty("percent_before", static_cast<int>(100 * before / kFabrics));
  RecordProperty("percent_after", static_cast<int>(100 * after / kFabrics));
  EXPECT_LT(before / kFabrics, 0.65);
  EXPECT_GE(after / kFabrics, 0.95);
}

TEST_F(Steering, ChangesNothingThatIsRight) {
  const std::vector<Flow> flows = make_flows(16, 1);
  for (unsigned check = 0; check < 4; ++check) {
    static_cast<void>(receive(flows, 100));
    static_cast<void>(steering->update());
  }
  const unsigned updates = nic->reta_updates;
  static_cast<void>(receive(flows, 1000));
  EXPECT_EQ(steering->update(), 0U);
  EXPECT_EQ(nic->reta_updates, updates);
}

// Few frames do not outweigh the packets that a change may reorder.
TEST_F(Steering, WaitsForEnoughFrames) {
  const uint32_t wrong = 1 - port->receiver_of(nic->queue_of(5));
  static_cast<void>(receive({{5, wrong}}, 31));
  EXPECT_EQ(steering->update(), 0U);
  static_cast<void>(receive({{5, wrong}}, 1));
  EXPECT_EQ(steering->update(), 1U);
  EXPECT_EQ(port->receiver_of(nic->queue_of(5)), wrong);
}

// Flows of different owners share an entry, and the frames that come are always of the other core.
TEST_F(Steering, SeldomChangesASharedEntry) {
  size_t changes = 0;
  for (unsigned turn = 0; turn < 1000; ++turn) {
    static_cast<void>(receive({{5, 1 - port->receiver_of(nic->queue_of(5))}}, 64));
    changes += steering->update();
  }
  EXPECT_LT(changes, 30U);
}

TEST_F(Steering, FollowsAFlowThatTakesTheEntryOver) {
  const uint32_t first = port->receiver_of(nic->queue_of(5));
  static_cast<void>(receive({{5, first}}, 100'000));
  for (unsigned check = 0; check < 300 && port->receiver_of(nic->queue_of(5)) == first; ++check) {
    static_cast<void>(receive({{5, 1 - first}}, 100));
    static_cast<void>(steering->update());
  }
  EXPECT_EQ(port->receiver_of(nic->queue_of(5)), 1 - first);
}

TEST_F(Steering, NeedsATableThatTheNicShows) {
  open({.has_reta_query = false});
  EXPECT_EQ(port->flow_table(), nullptr);
}

/// A device with two cores, whose peers send to 16 QPs.
class SteeredDevice : public Steering {
 protected:
  void TearDown() override {
    if (running != nullptr) running->shut_down();
    running.reset();
    Steering::TearDown();
  }

  void run(const NicTraits& traits) {
    TearDown();
    nic = std::make_unique<ModelNic>(traits);
    device.port.address = nic->name();
    device.addresses = {*glue::parse_address("198.18.0.1/24")};
    device.progress = glue::Progress::dedicated;
    device.lcores = {first_cpu(), first_cpu()};
    config.domain.monitor_invalidations = false;
    config.devices = {device};
    std::string error;
    running = glue::RunningDevice::open(config, device, nullptr, error);
    ASSERT_NE(running, nullptr) << error;
    make_frames();
  }

  static unsigned first_cpu() {
    cpu_set_t cpus;
    EXPECT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    unsigned cpu = 0;
    while (!CPU_ISSET(cpu, &cpus)) ++cpu;
    return cpu;
  }

  /// One packet a QP. No two have the same entry of the table: nothing could bring both to different owners.
  void make_frames() {
    frames.clear();
    std::mt19937 random(7);
    std::set<size_t> entries;
    while (frames.size() < 16) {
      wire::PathHeader path;
      path.source_mac = {{0x02, 0x46, 0x4c, 0, 0, 2}};
      path.destination_mac = running->description().mac;
      path.source_gid = wire::Gid::from_ipv4(0xc6120002);
      path.destination_gid = wire::Gid::from_ipv4(0xc6120001);
      path.udp_source_port = static_cast<uint16_t>(0xc000 | (random() & 0x3fff));
      wire::PacketFields fields;
      fields.bth.opcode = wire::Opcode::rc_send_only;
      fields.bth.destination_qpn = 0x100 + random() % 0x10000;
      const wire::FrameTemplate header(path);
      std::vector<uint8_t> frame(header.frame_bytes(fields.bth.opcode, 0));
      EXPECT_NE(header.write_headers(frame, fields, 0), nullptr);
      header.seal(frame, fields.bth.opcode, 0);
      if (entries.insert(wire::flow_hash(frame, nic->key, true).value() % nic->reta.size()).second)
        frames.push_back(std::move(frame));
    }
  }

  /// Sends to each QP in turn; returns the share of frames that were handed over.
  double send(unsigned rounds) {
    const auto before = running->port_counters();
    uint64_t sent = 0;
    for (unsigned round = 0; round < rounds; ++round)
      for (const auto& frame : frames) sent += nic->deliver(frame, glue::frame_pool(config)) ? 1 : 0;
    const auto deadline = std::chrono::steady_clock::now() + faultline::test::hang_limit();
    while (running->port_counters().rx_frames < before.rx_frames + sent &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return static_cast<double>(running->port_counters().handed_over - before.handed_over) /
           static_cast<double>(sent);
  }

  std::shared_ptr<glue::RunningDevice> running;
  std::vector<std::vector<uint8_t>> frames;
};

TEST_F(SteeredDevice, HandsOverFewFrames) {
  for (const bool reports_hash : {false, true}) {
    run({.reports_hash = reports_hash});
    const double first = send(1);
    EXPECT_GT(first, 0.1);
    double share = first;
    for (unsigned turn = 0; turn < 3000 && share > 0.05; ++turn) share = send(20);
    EXPECT_LE(share, 0.05) << (reports_hash ? "the NIC's hash" : "the software's hash");
  }
}

// Without the key, frames whose mbufs have the hash still vote.
TEST_F(Steering, WorksWithoutTheNicsKey) {
  open({.shows_key = false});
  ASSERT_NE(port->flow_table(), nullptr);
  EXPECT_TRUE(port->flow_table()->key().empty());
  const uint32_t wrong = 1 - port->receiver_of(nic->queue_of(77));
  static_cast<void>(receive({{77, wrong}}, 100));
  EXPECT_EQ(steering->update(), 1U);
}

}  // namespace
}  // namespace faultline::test::flow_steering_test
