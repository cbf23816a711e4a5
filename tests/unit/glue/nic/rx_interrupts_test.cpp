// SPDX-License-Identifier: BSD-3-Clause
// The receive interrupts of a model NIC, and a device that sleeps on them.
#include "pmd_glue/ports/nic/rx_interrupts.hpp"

#include <array>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <rte_mbuf.h>

#include "pmd_glue/device/running_device.hpp"
#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "stack/wire/packet/frame.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/glue/model_nic.hpp"
#include "tests/unit/glue/nic/nic_fixture.hpp"

namespace faultline::test::rx_interrupts_test {
namespace {

class NicInterrupts : public NicFixture {
 protected:
  void SetUp() override {
    NicFixture::SetUp();
    make_frame();
  }

  void make_frame() {
    wire::PathHeader path;
    path.source_mac = {{0x02, 0x46, 0x4c, 0, 0, 2}};
    path.destination_mac = {{0x02, 0x46, 0x4d, 0, 0, 9}};
    path.source_gid = wire::Gid::from_ipv4(0xc6120002);
    path.destination_gid = wire::Gid::from_ipv4(0xc6120001);
    path.udp_source_port = 0xc000;
    wire::PacketFields fields;
    fields.bth.opcode = wire::Opcode::rc_send_only;
    fields.bth.destination_qpn = 0x1234;
    const wire::FrameTemplate header(path);
    frame.resize(header.frame_bytes(fields.bth.opcode, 0));
    EXPECT_NE(header.write_headers(frame, fields, 0), nullptr);
    header.seal(frame, fields.bth.opcode, 0);
  }
  void deliver(ModelNic& nic) const { EXPECT_TRUE(nic.deliver(frame, glue::frame_pool(config))); }

  static bool is_readable(int descriptor) {
    pollfd poller{.fd = descriptor, .events = POLLIN, .revents = 0};
    return poll(&poller, 1, 0) == 1;
  }
  static size_t receive_all(glue::EthernetPort& port) {
    std::array<rte_mbuf*, 32> burst;
    const size_t count = port.receive(0, burst);
    rte_pktmbuf_free_bulk(burst.data(), static_cast<unsigned>(count));
    return count;
  }

  std::vector<uint8_t> frame;
};

TEST_F(NicInterrupts, ReportFramesWhileTheQueueIsArmed) {
  ModelNic nic({});
  const auto port = open(nic);
  EXPECT_TRUE(port->has_interrupts());
  EXPECT_FALSE(nic.armed[0]) << "polled queues raise no interrupt";
  deliver(nic);
  EXPECT_FALSE(is_readable(port->frames_descriptor(0)));
  EXPECT_EQ(receive_all(*port), 1U);

  const int descriptor = port->await_frames(0);
  ASSERT_GE(descriptor, 0);
  EXPECT_FALSE(is_readable(descriptor));
  deliver(nic);
  EXPECT_TRUE(is_readable(descriptor));
  port->stop_awaiting_frames(0);
  EXPECT_FALSE(is_readable(descriptor));
  EXPECT_FALSE(nic.armed[0]);
  EXPECT_EQ(receive_all(*port), 1U);
  EXPECT_FALSE(port->may_rest());
  port->note_wake(0, true, true);
  EXPECT_TRUE(port->may_rest()) << "an interrupt with a frame proves the NIC's interrupts";
}

TEST_F(NicInterrupts, ANicWithoutThemIsPolled) {
  for (const NicTraits& traits :
       {NicTraits{.has_rx_interrupts = false}, NicTraits{.refuses_rx_interrupts = true}}) {
    const ModelNic nic(traits);
    const auto port = open(nic);
    EXPECT_FALSE(port->has_interrupts());
    EXPECT_EQ(port->await_frames(0), -1);
    port->stop_awaiting_frames(0);
  }
}

TEST_F(NicInterrupts, RefusedOnesLeaveTheQueuesAlone) {
  device.lcores = {0, 1};
  const ModelNic nic({.refuses_rx_interrupts = true});
  const auto port = open(nic);
  EXPECT_EQ(port->receive_queues(), 2);
  EXPECT_EQ(nic.conf.rxmode.mq_mode, RTE_ETH_MQ_RX_RSS);
}

// A program must not wait for interrupts that never come.
TEST_F(NicInterrupts, ASilentNicIsPolledAfterSomeSleeps) {
  ModelNic nic({.sends_rx_interrupts = false});
  const auto port = open(nic);
  unsigned sleeps = 0;
  for (; port->await_frames(0) >= 0 && sleeps < 100; ++sleeps) {
    deliver(nic);
    port->stop_awaiting_frames(0);
    port->note_wake(0, false, receive_all(*port) == 1);
  }
  EXPECT_EQ(sleeps, 8U);
}

TEST_F(NicInterrupts, ComeBackAfterAReset) {
  ModelNic nic({});
  const auto port = open(nic);
  ASSERT_GE(port->await_frames(0), 0);
  port->reset();
  EXPECT_FALSE(nic.armed[0]);
  const int descriptor = port->await_frames(0);
  deliver(nic);
  EXPECT_TRUE(is_readable(descriptor));
}

// The device sleeps armed, receives what comes, and sleeps again, also after reports without a frame.
TEST_F(NicInterrupts, AnIdleDeviceSleepsOnThem) {
  for (const auto progress : {glue::Progress::automatic, glue::Progress::dedicated}) {
    ModelNic nic({});
    device.progress = progress;
    device.port.address = nic.name();
    config.devices = {device};
    std::string error;
    const auto running = glue::RunningDevice::open(config, device, nullptr, error);
    ASSERT_NE(running, nullptr) << error;
    for (uint64_t sent = 1; sent <= 10; ++sent) {
      EXPECT_TRUE(eventually([&] { return nic.armed[0].load(); }));
      nic.interrupt(0);
      EXPECT_TRUE(eventually([&] { return nic.armed[0].load(); }));
      deliver(nic);
      EXPECT_TRUE(eventually([&] { return running->port_counters().rx_frames == sent; }));
    }
    running->shut_down();
  }
}

}  // namespace
}  // namespace faultline::test::rx_interrupts_test
