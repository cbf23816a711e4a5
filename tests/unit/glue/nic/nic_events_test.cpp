// SPDX-License-Identifier: BSD-3-Clause
// What a model NIC reports of itself: it is to be removed, or it needs a reset.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <rte_mbuf.h>

#include "apps/switch/uplink/uplink.hpp"
#include "pmd_glue/device/running_device.hpp"
#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/ports/rss_table.hpp"
#include "stack/transport/qp/init.hpp"
#include "stack/wire/packet/frame.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/glue/model_nic.hpp"
#include "tests/unit/glue/nic/nic_fixture.hpp"

namespace faultline::test::nic_events_test {
namespace {

using transport::AsyncEvent;

class NicEvents : public NicFixture {
 protected:
  void SetUp() override {
    NicFixture::SetUp();
    device.mac = {{0x02, 0x46, 0xc6, 0x12, 0, 1}};
  }
};

TEST_F(NicEvents, VfiosRequestForTheDeviceIsItsRemoval) {
  ModelNic nic({});
  const auto port = open(nic);
  EXPECT_FALSE(port->is_gone());
  nic.request_removal();
  EXPECT_TRUE(port->is_gone());
  EXPECT_FALSE(nic.is_closed) << "the callback has closed the port on EAL's thread";
  port->release();
  EXPECT_TRUE(nic.is_closed);
  EXPECT_TRUE(nic.is_given_back);
  EXPECT_FALSE(port->link_up());
  EXPECT_TRUE(nic.callbacks.empty());
}

TEST_F(NicEvents, ThePmdReportsTheRemovalIfItCan) {
  for (const auto event : {RTE_ETH_EVENT_INTR_RMV, RTE_ETH_EVENT_RECOVERY_FAILED}) {
    ModelNic nic({.has_removal_interrupt = true});
    const auto port = open(nic);
    EXPECT_EQ(nic.conf.intr_conf.rmv, 1U);
    nic.report(event);
    EXPECT_TRUE(port->is_gone());
  }
}

TEST_F(NicEvents, AClosedPortHearsNothing) {
  ModelNic nic({});
  open(nic).reset();
  EXPECT_TRUE(nic.callbacks.empty());
  nic.request_removal();
}

TEST_F(NicEvents, AResetBringsTheConfigurationBack) {
  device.lcores = {0, 1};
  device.vlan_id = 100;
  device.has_configured_mac = true;
  ModelNic nic({.rx_offloads = RTE_ETH_RX_OFFLOAD_VLAN_FILTER});
  const auto port = open(nic);
  ASSERT_EQ(port->flow_table()->point(5, 0), 0);
  EXPECT_FALSE(port->needs_reset());
  nic.report(RTE_ETH_EVENT_INTR_RESET);
  EXPECT_TRUE(port->needs_reset());
  EXPECT_EQ(nic.resets, 0U);
  port->reset();
  EXPECT_FALSE(port->needs_reset());
  EXPECT_TRUE(port->started());
  EXPECT_EQ(nic.resets, 1U);
  EXPECT_EQ(nic.queues, 2);
  EXPECT_EQ(nic.vlans, std::set<uint16_t>{100});
  EXPECT_EQ(nic.reta[5], 0);
  EXPECT_EQ(nic.reta[7], 1);
  EXPECT_EQ(nic.mac.addr_bytes[4], 0) << "the address of the file";
}

TEST_F(NicEvents, AFailedResetIsTriedAgain) {
  ModelNic nic({});
  const auto port = open(nic);
  nic.report(RTE_ETH_EVENT_INTR_RESET);
  nic.failing_resets = 1;
  port->reset();
  EXPECT_TRUE(port->needs_reset());
  EXPECT_FALSE(port->started());
  EXPECT_FALSE(port->link_up());
  port->reset();
  EXPECT_FALSE(port->needs_reset());
  EXPECT_TRUE(port->started());
}

TEST_F(NicEvents, ANicWithoutAResetStartsAgain) {
  ModelNic nic({.has_reset = false});
  const auto port = open(nic);
  nic.report(RTE_ETH_EVENT_INTR_RESET);
  port->reset();
  EXPECT_FALSE(port->needs_reset());
  EXPECT_TRUE(nic.is_started);
}

// A switch has no progress thread: its uplink looks itself.
TEST_F(NicEvents, TheSwitchsUplinkAnswersBothRequests) {
  ModelNic nic({});
  device.port.address = nic.name();
  config.devices = {device};
  std::string error;
  const auto uplink = switching::Uplink::open(config, device, error);
  ASSERT_NE(uplink, nullptr) << error;
  const auto receive = [&] {
    std::array<rte_mbuf*, 8> burst;
    EXPECT_EQ(uplink->receive(burst), 0U);
  };
  const auto deadline = std::chrono::steady_clock::now() + faultline::test::hang_limit();
  const auto is_late = [&] { return std::chrono::steady_clock::now() > deadline; };
  nic.report(RTE_ETH_EVENT_INTR_RESET);
  while (nic.resets == 0 && !is_late()) receive();
  EXPECT_EQ(nic.resets, 1U);
  EXPECT_TRUE(uplink->link_up());
  nic.request_removal();
  while (!nic.is_given_back && !is_late()) receive();
  EXPECT_TRUE(nic.is_given_back);
  EXPECT_FALSE(uplink->link_up());
  rte_mbuf* frame = nullptr;
  EXPECT_EQ(uplink->transmit({&frame, 1}), 0U);
}

/// A device with engines and a QP, while its peer sends.
class DeviceOnNic : public NicEvents, public transport::EventSink {
 protected:
  void SetUp() override {
    NicEvents::SetUp();
    nic.emplace(NicTraits{});
  }
  void TearDown() override {
    is_over = true;
    if (peer.joinable()) peer.join();
    if (running != nullptr) running->shut_down();
  }

  void run(glue::Progress progress) {
    device.progress = progress;
    device.port.address = nic->name();
    config.devices = {device};
    std::string error;
    running = glue::RunningDevice::open(config, device, nullptr, error);
    ASSERT_NE(running, nullptr) << error;
    running->set_event_sink(this);
    peer = std::thread([this] { send_until_over(); });
    await([&] { return running->port_counters().rx_frames > 100; });
  }

  void send_until_over() {
    wire::PathHeader path;
    path.source_mac = {{0x02, 0x46, 0x4c, 0, 0, 2}};
    path.destination_mac = running->description().mac;
    path.source_gid = wire::Gid::from_ipv4(0xc6120002);
    path.destination_gid = wire::Gid::from_ipv4(0xc6120001);
    path.udp_source_port = 0xc000;
    wire::PacketFields fields;
    fields.bth.opcode = wire::Opcode::rc_send_only;
    fields.bth.destination_qpn = 0x1234;
    const wire::FrameTemplate header(path);
    std::vector<uint8_t> frame(header.frame_bytes(fields.bth.opcode, 0));
    EXPECT_NE(header.write_headers(frame, fields, 0), nullptr);
    header.seal(frame, fields.bth.opcode, 0);
    while (!is_over) {
      static_cast<void>(nic->deliver(frame, glue::frame_pool(config)));
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  /// Returns a QP with a receive posted.
  transport::QueuePair* make_qp(transport::CompletionQueue& cq) {
    transport::QpInit init;
    init.type = transport::QpType::ud;
    init.send_cq = init.receive_cq = &cq;
    transport::QueuePair* const qp = running->core(0).create_qp(init);
    if (qp == nullptr) return nullptr;
    transport::QpAttributes attributes;
    attributes.state = transport::QpState::init;
    constexpr uint32_t kMask =
        transport::kAttrState | transport::kAttrPkeyIndex | transport::kAttrPort | transport::kAttrQkey;
    EXPECT_EQ(running->core(0).modify_qp(qp, attributes, kMask, 0), 0);
    transport::ReceiveRing& ring = transport::receive_ring_of(qp);
    *ring.prepare() = {};
    ring.advance();
    ring.publish();
    return qp;
  }

  template <typename Condition>
  void await(Condition condition) {
    EXPECT_TRUE(eventually(condition));
  }

  // transport::EventSink
  void on_qp_event(uint32_t /*qpn*/, void* /*user*/, AsyncEvent /*event*/) override {}
  void on_cq_event(transport::CompletionQueue* /*cq*/, AsyncEvent /*event*/) override {}
  void on_device_event(AsyncEvent event) override {
    const std::lock_guard guard(mutex);
    events.push_back(event);
  }
  bool has_event(AsyncEvent event) {
    const std::lock_guard guard(mutex);
    return std::ranges::count(events, event) == 1;
  }

  std::optional<ModelNic> nic;
  std::shared_ptr<glue::RunningDevice> running;
  std::thread peer;
  std::atomic<bool> is_over{false};
  std::mutex mutex;
  std::vector<AsyncEvent> events;
};

TEST_F(DeviceOnNic, ARemovalInTheMidstOfTrafficEndsTheDevice) {
  run(glue::Progress::automatic);
  transport::CompletionQueue cq(16);
  transport::QueuePair* qp = nullptr;
  glue::call_with(*running, 0, [&] { qp = make_qp(cq); });
  ASSERT_NE(qp, nullptr);
  nic->request_removal();
  await([&] { return has_event(AsyncEvent::device_fatal) && nic->is_given_back; });
  EXPECT_TRUE(has_event(AsyncEvent::port_error));
  EXPECT_EQ(transport::state_of(qp), transport::QpState::err);
  transport::Completion completion;
  ASSERT_EQ(cq.poll({&completion, 1}), 1U);
  EXPECT_EQ(completion.status, transport::CompletionStatus::work_request_flushed);
  EXPECT_FALSE(running->link_up());
  const uint64_t received = running->port_counters().rx_frames;
  running->drive();
  EXPECT_EQ(running->port_counters().rx_frames, received);
  glue::call_with(*running, 0, [&] { running->core(0).destroy_qp(qp); });
}

TEST_F(DeviceOnNic, AResetInTheMidstOfTrafficIsSurvived) {
  device.lcores = {0, 0};
  run(glue::Progress::dedicated);
  nic->report(RTE_ETH_EVENT_INTR_RESET);
  await([&] { return running->port_counters().nic_resets == 1; });
  const uint64_t received = running->port_counters().rx_frames;
  await([&] { return running->port_counters().rx_frames > received + 100; });
  EXPECT_TRUE(running->link_up());
  EXPECT_EQ(nic->resets, 1U);
  EXPECT_FALSE(has_event(AsyncEvent::device_fatal));
}

}  // namespace
}  // namespace faultline::test::nic_events_test
