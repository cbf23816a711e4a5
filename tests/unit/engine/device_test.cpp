// SPDX-License-Identifier: BSD-3-Clause
// A running device on a fake port. No progress thread runs (manual_progress.cpp): the tests drive the device
// and call maintain() at the times that they choose.
#include <cerrno>
#include <semaphore>
#include <thread>

#include "pmd_glue/device/device_counters.hpp"
#include "pmd_glue/device/running_device.hpp"
#include "pmd_glue/trouble/scenario_file.hpp"
#include "stack/base/clock.hpp"
#include "stack/trouble/director.hpp"
#include "stack/wire/link/link.hpp"
#include "tests/unit/engine/frames.hpp"

namespace faultline::glue::test::device_test {
namespace {

using transport::AsyncEvent;

/// The interval at which maintain() looks at the port.
constexpr TimeNs kPortCheck = 20 * kMillisecond;

class Events final : public transport::EventSink {
 public:
  void on_qp_event(uint32_t /*qpn*/, void* /*user*/, AsyncEvent /*event*/) override {}
  void on_cq_event(transport::CompletionQueue* /*cq*/, AsyncEvent /*event*/) override {}
  void on_device_event(AsyncEvent event) override { all.push_back(event); }

  std::vector<AsyncEvent> all;
};

class Device : public WithFrames {
 protected:
  void SetUp() override {
    WithFrames::SetUp();
    config.path = "test.toml";
    config.domain.monitor_invalidations = false;
    config.domain.pager_threads = 1;
    DeviceConfig& description = config.devices.emplace_back();
    description.name = "fake0";
    description.addresses.push_back(*parse_address("198.18.0.1/24"));
    description.mac = mac_of(description.addresses[0].gid);
  }
  void open() {
    std::string error;
    device = RunningDevice::open(config, config.devices[0], nullptr, error);
    ASSERT_NE(device, nullptr) << error;
    port = FakePort::of("fake0");
    ASSERT_NE(port, nullptr);
    device->set_event_sink(&events);
  }
  /// Lets the device look at its port `times` times.
  void check_port(int times = 1) {
    for (int i = 0; i < times; ++i) {
      VirtualClock::advance(kPortCheck);
      device->maintain(VirtualClock::now());
    }
  }

  Config config;
  Events events;
  std::shared_ptr<RunningDevice> device;
  FakePort* port = nullptr;
};

TEST_F(Device, AnswersOnThePortThatItsDriverOpened) {
  open();
  EXPECT_TRUE(device->link_up());
  port->deliver(arp_request(device->description().gids[0].ipv4()));
  device->drive();
  EXPECT_EQ(port->take_sent().size(), 1U);
  port->dropped = {.missed = 3, .no_buffer = 4};
  const verbs::PortCounters counters = device->port_counters();
  EXPECT_EQ(counters.arp_out, 1U);
  EXPECT_EQ(counters.rx_missed, 3U);
  EXPECT_EQ(counters.rx_no_mbuf, 4U);
}

struct CounterCase {
  const char* name;
  uint64_t least;
  bool is_reached;
};

TEST_F(Device, AScenarioWaitsForItsCounters) {
  const CounterCase cases[] = {
      {"port.rx_frames", 3, true},   {"port.rx_frames", 4, false},      {"port.arp_in", 2, true},
      {"port.arp_in", 3, false},     {"transport.rx_packets", 1, true}, {"transport.rx_packets", 2, false},
      {"drop.unknown_qpn", 1, true}, {"drop.unknown_qpn", 2, false},    {"odp.num_odp_mrs", 1, true},
      {"odp.num_odp_mrs", 2, false}, {"parse.udp_checksum", 1, false},  {"odp.fault_us.swap.more", 1, false},
  };
  std::vector<uint8_t> memory(4096);
  for (const CounterCase& one : cases) {
    const std::string toml = std::string("[[rule]]\nwhen = { call = \"ibv_reg_mr\", counter = \"") +
                             one.name + "\", least = " + std::to_string(one.least) +
                             " }\ndo = { errno = \"ENOMEM\" }\n";
    trouble::Director director(parse_scenario(toml, "t.toml"), monotonic_ns, {});
    trouble::set_director(&director);
    config.domain.allow_unguarded = true;
    open();
    const auto address = reinterpret_cast<uint64_t>(memory.data());
    EXPECT_EQ(device->memory()
                  .register_region({.domain = 1,
                                    .address = address,
                                    .length_bytes = memory.size(),
                                    .iova = address,
                                    .access = odp::kLocalWrite | odp::kOnDemand})
                  .error,
              0);
    const Station station("198.18.0.1/24");
    for (int i = 0; i < 2; ++i) port->deliver(arp_request(device->description().gids[0].ipv4()));
    port->deliver(roce_frame(station, 0x123456));
    device->drive();
    const trouble::Object object{trouble::ObjectKind::device, director.device("fake0"), 0};
    const auto decide = [&] {
      return director.decide({.kind = trouble::EventKind::call, .name = "ibv_reg_mr", .object = object});
    };
    EXPECT_EQ(decide() != nullptr, one.is_reached) << one.name << ' ' << one.least;
    device.reset();
    EXPECT_EQ(decide(), nullptr) << "a closed device has no counters; the rule has decided once at most";
    trouble::set_director(nullptr);
  }
}

TEST(Counters, ThatAnEngineReadsCanBeWaitedFor) {
  for (const CounterCase& one : {CounterCase{"transport.timeouts", 0, true},
                                 {"transport.nothing", 0, false},
                                 {"port.tx_frames", 0, true},
                                 {"port.rx_missed", 0, false},
                                 {"cm.sent", 0, false},
                                 {"odp.fault_us.swap.more", 0, true},
                                 {"parse.icrc", 0, true},
                                 {"drop.unknown_qpn", 0, true}})
    EXPECT_EQ(can_be_waited_for(one.name), one.is_reached) << one.name;
}

TEST_F(Device, AFaultOfThePortIsTheErrorOfOpen) {
  FakePort::refusal = "device.port: no such thing";
  std::string error;
  EXPECT_EQ(RunningDevice::open(config, config.devices[0], nullptr, error), nullptr);
  EXPECT_EQ(error, "faultline: test.toml: fake0: device.port: no such thing");
}

TEST_F(Device, APortThatIsGoneEndsTheDeviceWithOneFatalEvent) {
  open();
  check_port(3);
  ASSERT_TRUE(events.all.empty()) << "the link was up from the start";
  port->gone = true;
  check_port(5);
  port->gone = false;
  check_port(5);
  EXPECT_EQ(events.all, (std::vector{AsyncEvent::port_error, AsyncEvent::device_fatal}));
  EXPECT_EQ(port->releases, 1U);
  EXPECT_FALSE(device->link_up());
  const unsigned calls = port->receive_calls;
  device->drive();
  EXPECT_EQ(port->receive_calls, calls) << "the lost port is left alone";
}

TEST_F(Device, ThePortIsAMemberOfAGroupFromTheFirstJoinToTheLastLeave) {
  open();
  const auto group = wire::Gid::from_ipv4(0xef010203);
  ASSERT_EQ(device->join_multicast(group), 0);
  ASSERT_EQ(device->join_multicast(group), 0);
  EXPECT_EQ(port->groups, std::vector{group});
  device->leave_multicast(group);
  EXPECT_EQ(port->groups, std::vector{group});
  device->leave_multicast(group);
  EXPECT_TRUE(port->groups.empty());
}

TEST_F(Device, AGroupThatThePortRefusesIsNotJoined) {
  open();
  const auto group = wire::Gid::from_ipv4(0xef010203);
  port->group_refusal = EADDRNOTAVAIL;
  EXPECT_EQ(device->join_multicast(group), EADDRNOTAVAIL);
  port->group_refusal = 0;
  EXPECT_EQ(device->join_multicast(group), 0) << "a refused join is no join";
  EXPECT_EQ(port->groups, std::vector{group});
  device->leave_multicast(group);
}

TEST_F(Device, ALinkThatEndsAndReturnsIsOneEventEach) {
  open();
  port->link = false;
  device->maintain(VirtualClock::now());
  EXPECT_EQ(events.all, std::vector{AsyncEvent::port_error});
  port->link = true;
  VirtualClock::advance(kPortCheck - 1);
  device->maintain(VirtualClock::now());
  EXPECT_EQ(events.all.size(), 1U) << "not looked at before its time";
  check_port(3);
  EXPECT_EQ(events.all, (std::vector{AsyncEvent::port_error, AsyncEvent::port_active}));
}

TEST_F(Device, ALostLinkIsReconnectedOnceASecond) {
  open();
  port->reconnects_if_down = true;
  port->link = false;
  check_port(45);
  EXPECT_EQ(port->reconnects, 0U) << "the first handshake may take a second";
  check_port(10);
  EXPECT_EQ(port->reconnects, 1U);
  check_port(100);
  EXPECT_EQ(port->reconnects, 3U);
  port->link = true;
  check_port(100);
  EXPECT_EQ(port->reconnects, 3U);
  EXPECT_TRUE(device->link_up());
}

TEST_F(Device, APortThatCannotStartIsTriedAgainAtEachCheckAndNotUsed) {
  open();
  port->reconnects_if_down = true;
  port->link = false;
  port->starts = false;
  VirtualClock::advance(kSecond);
  check_port(3);
  EXPECT_EQ(port->reconnects, 3U);
  const unsigned calls = port->receive_calls;
  device->drive();
  EXPECT_EQ(port->receive_calls, calls);
  port->starts = true;
  check_port();
  device->drive();
  EXPECT_EQ(port->receive_calls, calls + 1);
}

TEST_F(Device, ASecondThreadThatDrivesReturnsWithoutATurn) {
  open();
  std::binary_semaphore inside{0};
  std::binary_semaphore leave{0};
  port->on_receive = [&] {
    if (port->receive_calls != 1) return;
    inside.release();
    leave.acquire();
  };
  std::thread driver([&] { device->drive(); });
  inside.acquire();
  device->drive();
  EXPECT_EQ(port->receive_calls, 1U) << "the first thread is in its turn";
  leave.release();
  driver.join();
  port->on_receive = nullptr;
  device->drive();
  EXPECT_EQ(port->receive_calls, 2U);
}

TEST_F(Device, ACallRunsAfterTheTurnOfAnotherThread) {
  open();
  std::binary_semaphore inside{0};
  std::binary_semaphore leave{0};
  std::atomic<bool> is_in_turn{false};
  port->on_receive = [&] {
    is_in_turn = true;
    inside.release();
    leave.acquire();
    is_in_turn = false;
  };
  std::thread driver([&] { device->drive(); });
  inside.acquire();
  bool ran_in_turn = true;
  std::pair argument{&is_in_turn, &ran_in_turn};
  std::thread caller([&] {
    device->call(
        [](void* pointer) {
          auto& [in_turn, result] = *static_cast<decltype(argument)*>(pointer);
          *result = *in_turn;
        },
        &argument);
  });
  leave.release();
  caller.join();
  driver.join();
  port->on_receive = nullptr;
  EXPECT_FALSE(ran_in_turn);
}

TEST_F(Device, ResolvingWaitsForANeighbourWithoutACpu) {
  open();
  const TimeNs begin = VirtualClock::now();
  Frame reply(wire::kMaxLinkFrameBytes);
  const DeviceConfig& own = config.devices[0];
  const wire::ArpPacket packet{wire::ArpOperation::reply, kPeerMac, kPeerIp, own.mac,
                               own.addresses[0].gid.ipv4()};
  reply.resize(wire::build_arp(reply, packet, own.mac));
  bool answered = false;
  port->on_receive = [&] {
    VirtualClock::advance(10 * kMillisecond);
    if (answered || VirtualClock::now() - begin < 9 * kSecond) return;
    answered = true;
    port->deliver(reply);
  };
  wire::MacAddress mac;
  EXPECT_EQ(device->resolve(wire::Gid::from_ipv4(kPeerIp), mac), 0);
  EXPECT_EQ(mac, kPeerMac);
  port->on_receive = nullptr;
}

TEST_F(Device, ResolvingASilentNeighbourEndsAfterTenSeconds) {
  open();
  const TimeNs begin = VirtualClock::now();
  port->on_receive = [] { VirtualClock::advance(10 * kMillisecond); };
  wire::MacAddress mac;
  EXPECT_EQ(device->resolve(wire::Gid::from_ipv4(kPeerIp), mac), EHOSTUNREACH);
  EXPECT_GE(VirtualClock::now() - begin, 10 * kSecond);
  EXPECT_LT(VirtualClock::now() - begin, 11 * kSecond);
  EXPECT_EQ(port->take_sent().size(), 14U);
  port->on_receive = nullptr;
}

TEST_F(Device, AfterShutDownCallsAreValidAndHaveNoEffect) {
  open();
  device->shut_down();
  EXPECT_EQ(FakePort::of("fake0"), nullptr) << "the port is closed";
  device->drive();
  EXPECT_FALSE(device->link_up());
  EXPECT_EQ(device->port_counters().rx_missed, 0U);
  wire::MacAddress mac;
  EXPECT_EQ(device->resolve(wire::Gid::from_ipv4(kPeerIp), mac), EHOSTUNREACH);
  device->shut_down();
}

TEST_F(Device, FramesThatALinkModelHoldsLeaveBeforeThePortCloses) {
  config.devices[0].chaos.link.delay_ns = kMillisecond;
  config.devices[0].chaos.receive = false;
  open();
  port->deliver(arp_request(device->description().gids[0].ipv4()));
  device->drive();
  ASSERT_TRUE(port->take_sent().empty());
  const unsigned before = port->transmit_calls;
  VirtualClock::advance(kMillisecond);
  unsigned after = before;
  port->on_transmit = [&] { ++after; };
  device->shut_down();
  EXPECT_EQ(after, before + 1);
}

}  // namespace
}  // namespace faultline::glue::test::device_test
