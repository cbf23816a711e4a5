// SPDX-License-Identifier: BSD-3-Clause
// The ports of processes on one wire with the real switch between them, all in this process: its control
// socket, its forwarding, and the direct links that it makes. Time is virtual.
#include "pmd_glue/direct/wire_port.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include <rte_mempool.h>

#include "apps/switch/control.hpp"
#include "apps/switch/frame_switch.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/wires/switch_place.hpp"
#include "tests/unit/direct/direct_frames.hpp"
#include "tests/unit/engine/eal_pool.hpp"
#include "tests/unit/engine/virtual_clock.hpp"

namespace faultline::glue::test::wire_port_test {
namespace {

using switching::Control;
using switching::FrameSwitch;

Config one_device() {
  Config config;
  config.path = "test";
  config.eal.memory_mib = 64;
  config.devices.resize(1);
  config.devices[0].name = "faultline0";
  config.devices[0].port.kind = PortKind::wire;
  return config;
}

/// faultline-switch without its main loop.
class Switch {
 public:
  Switch(const SwitchPlace& place, TimeNs recovered_ns) : inbox_(Inbox::create()), frames_(config_, *inbox_) {
    bool died = false;
    control_ = std::make_unique<Control>("w", listen_on_wire(place, died), frames_, *inbox_, recovered_ns,
                                         Control::Host{.now = VirtualClock::now, .note = [](const auto&) {}});
    EXPECT_TRUE(control_->open());
  }
  void turn() {
    while (frames_.turn(VirtualClock::now())) continue;
    control_->serve(0);
    frames_.look_after(VirtualClock::now());
    while (frames_.turn(VirtualClock::now())) continue;
  }
  /// As another process that writes to the inbox might.
  void clear_doorbells() {
    inbox_->take_rings([](uint32_t) {});
  }
  [[nodiscard]] const switching::SwitchCounters& counters() const { return frames_.counters(); }
  void with_stations(const std::function<void(switching::StationTable&)>& use) { frames_.with_stations(use); }

 private:
  const Config config_ = one_device();
  std::unique_ptr<Inbox> inbox_;
  FrameSwitch frames_;
  std::unique_ptr<Control> control_;
};

/// A program on the wire: its attachment and its port.
struct Process {
  std::shared_ptr<WireAttachment> attachment;
  std::unique_ptr<WirePort> port;

  [[nodiscard]] const SwitchGrant& grant() const { return attachment->grant(); }
  bool send(const Bytes& bytes) const {
    rte_mbuf* frame = mbuf_of(port->pool(), bytes);
    const bool sent = port->transmit(0, {&frame, 1}) == 1;
    if (!sent) rte_pktmbuf_free(frame);
    return sent;
  }
  bool send(const Process& to, uint32_t number, uint32_t qpn = 77) const {
    return send(roce_frame(grant(), to.grant(), number, qpn));
  }
  [[nodiscard]] std::vector<uint32_t> receive() const {
    std::array<rte_mbuf*, 32> burst;
    std::vector<uint32_t> numbers;
    while (const size_t received = port->receive(0, burst))
      for (size_t i = 0; i < received; ++i) numbers.push_back(number_of(take_bytes(burst[i])));
    return numbers;
  }
  /// What the progress thread does.
  void maintain() const {
    std::string error;
    static_cast<void>(attachment->keep(error));
    for (WireAttachment::LinkNews& news : attachment->take_link_news()) port->take(std::move(news));
    for (const auto& [seat, is_barred] : port->look_after(VirtualClock::now()))
      attachment->end_link(seat, is_barred);
    if (!port->link_up() && attachment->is_granted()) port->reconnect();
  }
};

class Wires : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(pool(), nullptr);
    std::string pattern = std::filesystem::temp_directory_path() / "wires.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    std::string error;
    place_ = place_of_wire("w", error).value();
    switch_ = std::make_unique<Switch>(place_, 0);
    frames_ = rte_mempool_avail_count(frame_pool(config_));
  }
  void TearDown() override {
    processes_.clear();
    switch_.reset();
    std::filesystem::remove_all(folder_);
    EXPECT_EQ(rte_mempool_avail_count(frame_pool(config_)), frames_) << "a frame leaked";
  }

  Process& attach(bool shares = false) {
    WireRequest wanted;
    wanted.wire = "w";
    wanted.shared = shares;
    auto process = std::make_unique<Process>();
    std::string error;
    std::optional<SwitchGrant> holders;
    std::atomic<bool> done = false;
    std::thread taker([&] {
      process->attachment = WireAttachment::take(wanted, error, holders);
      done = true;
    });
    while (!done) switch_->turn();
    taker.join();
    EXPECT_NE(process->attachment, nullptr) << error;
    process->port = WirePort::open(config_, config_.devices[0], *process->attachment, error);
    EXPECT_NE(process->port, nullptr) << error;
    return *processes_.emplace_back(std::move(process));
  }
  void turn() {
    if (switch_ != nullptr) switch_->turn();
    for (const auto& process : processes_) process->maintain();
  }
  void settle() {
    for (int i = 0; i < 6; ++i) turn();
  }
  /// Both have a link, and its first frames have passed in both directions.
  void link(Process& one, Process& other) {
    ASSERT_TRUE(one.send(other, 1));
    settle();
    EXPECT_EQ(other.receive(), (std::vector<uint32_t>{1}));
    ASSERT_TRUE(one.send(other, 2) && other.send(one, 3));
    settle();
    EXPECT_EQ(other.receive(), (std::vector<uint32_t>{2}));
    EXPECT_EQ(one.receive(), (std::vector<uint32_t>{3}));
    EXPECT_EQ(one.port->links(), 1U);
    EXPECT_EQ(other.port->links(), 1U);
  }
  [[nodiscard]] uint64_t forwarded() const { return switch_->counters().forwarded; }

  const Config config_ = one_device();
  std::string folder_;
  SwitchPlace place_;
  std::unique_ptr<Switch> switch_;
  std::vector<std::unique_ptr<Process>> processes_;
  unsigned frames_ = 0;
};

TEST_F(Wires, TwoThatTalkHaveALinkThatTheSwitchDoesNotSee) {
  Process& one = attach();
  Process& other = attach();
  link(one, other);
  const uint64_t before = forwarded();
  for (uint32_t number = 10; number < 1000; ++number) {
    ASSERT_TRUE(one.send(other, number) && other.send(one, number));
    EXPECT_EQ(other.receive(), (std::vector<uint32_t>{number}));
    EXPECT_EQ(one.receive(), (std::vector<uint32_t>{number}));
  }
  settle();
  EXPECT_EQ(forwarded(), before);
}

// Frames flow while the link begins, with the switch slower or faster than the processes: none is lost,
// doubled or overtaken, in either direction.
TEST_F(Wires, FramesKeepTheirOrderWhileALinkBegins) {
  for (unsigned pace = 1; pace < 40; ++pace) {
    Process& one = attach();
    Process& other = attach();
    std::vector<uint32_t> to_other;
    std::vector<uint32_t> to_one;
    std::vector<uint32_t> sent;
    for (uint32_t number = 0; number < 120; ++number) {
      ASSERT_TRUE(one.send(other, number) && other.send(one, number));
      sent.push_back(number);
      if (number % pace == pace / 2) turn();
      if (number % 3 == pace % 3)
        for (const uint32_t got : other.receive()) to_other.push_back(got);
      for (const uint32_t got : one.receive()) to_one.push_back(got);
    }
    settle();
    for (const uint32_t got : other.receive()) to_other.push_back(got);
    for (const uint32_t got : one.receive()) to_one.push_back(got);
    EXPECT_EQ(to_other, sent) << pace;
    EXPECT_EQ(to_one, sent) << pace;
    processes_.clear();
    switch_->turn();
  }
}

TEST_F(Wires, ManagementDatagramsTakeTheWayOverTheSwitch) {
  Process& one = attach();
  Process& other = attach();
  ASSERT_TRUE(one.send(other, 1, wire::kManagementQpn));
  settle();
  EXPECT_EQ(other.receive().size(), 1U);
  EXPECT_EQ(one.port->links(), 0U);  // they make no link either
  link(one, other);
  const uint64_t before = forwarded();
  ASSERT_TRUE(one.send(other, 2, wire::kManagementQpn));
  settle();
  EXPECT_EQ(other.receive(), (std::vector<uint32_t>{2}));
  EXPECT_EQ(forwarded(), before + 1);
}

// Processes that share an address differ in the range of the QPN.
TEST_F(Wires, SharersOfAnAddressHaveALinkEach) {
  Process& one = attach();
  Process& first = attach(true);
  Process& second = attach(true);
  ASSERT_EQ(first.grant().ipv4, second.grant().ipv4);
  for (uint32_t round = 0; round < 3; ++round) {
    ASSERT_TRUE(one.send(first, 10 + round, first.grant().first_qpn() + 5));
    ASSERT_TRUE(one.send(second, 20 + round, second.grant().last_qpn()));
    ASSERT_TRUE(first.send(second, 30 + round, second.grant().first_qpn()));
    settle();
    EXPECT_EQ(first.receive(), (std::vector<uint32_t>{10 + round}));
    auto received = second.receive();
    std::sort(received.begin(), received.end());
    EXPECT_EQ(received, (std::vector<uint32_t>{20 + round, 30 + round}));
  }
  EXPECT_EQ(one.port->links(), 2U);
  EXPECT_EQ(second.port->links(), 2U);
}

// Two processes under the host's addresses, which an uplink's sockets have.
TEST_F(Wires, ProgramsOfTheHostsAddressesHaveALinkInBothFamilies) {
  constexpr uint32_t kWindowPackets = 33;
  const IpNetwork host6{wire::Gid{{0x20, 0x01, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5}}, 64};
  const IpNetwork host{wire::Gid::from_ipv4(0x0a000005), 120};
  const std::array networks{host, host6};
  switch_->with_stations([&](switching::StationTable& stations) {
    stations.set_host_of_sockets(networks, mac_of(host.gid), kWindowPackets);
    stations.note_uplink_state(true);
  });
  Process& one = attach();
  Process& other = attach();
  const wire::Gid peer = wire::Gid::from_ipv4(0x0a000009);
  for (const Process* process : {&one, &other}) {
    EXPECT_TRUE(process->port->sends_by_socket());
    EXPECT_TRUE(process->port->link_up());
    EXPECT_EQ(process->port->most_window_packets(), kWindowPackets);
    EXPECT_EQ(process->port->mac_of_peer(peer), mac_of(peer));
  }
  const auto send = [&](const Process& from, const Process& to, uint32_t number, const wire::Gid& address) {
    return from.send(
        roce_frame(from.grant(), to.grant(), number, to.grant().first_qpn() + 1,
                   [&](wire::PathHeader& path) { path.source_gid = path.destination_gid = address; }));
  };
  for (const wire::Gid& address : {host.gid, host6.gid}) {
    for (uint32_t number = 1; number <= 3; ++number) {
      ASSERT_TRUE(send(one, other, number, address) && send(other, one, number, address));
      settle();
      EXPECT_EQ(other.receive(), (std::vector<uint32_t>{number}));
      EXPECT_EQ(one.receive(), (std::vector<uint32_t>{number}));
    }
    EXPECT_EQ(one.port->links(), 1U);
  }
  // No other address is the host's, nor a link-local one.
  ASSERT_TRUE(send(one, other, 4, wire::link_local_gid(mac_of(host.gid))));
  settle();
  EXPECT_TRUE(other.receive().empty());
  settle();
  EXPECT_EQ(other.port->peer_violations(), 1U);
}

TEST_F(Wires, AProgramWithAnAddressOfTheWireSendsNoPacketsForSockets) {
  const Process& one = attach();
  EXPECT_FALSE(one.port->sends_by_socket());
  EXPECT_EQ(one.port->most_window_packets(), UINT32_MAX);
  EXPECT_FALSE(one.port->mac_of_peer(wire::Gid::from_ipv4(0x0a000009)).has_value());
}

TEST_F(Wires, ASwitchThatDiesDoesNotDisturbALink) {
  Process& one = attach();
  Process& other = attach();
  link(one, other);
  switch_.reset();
  settle();
  for (uint32_t number = 0; number < 100; ++number) {
    ASSERT_TRUE(one.send(other, number));
    EXPECT_EQ(other.receive(), (std::vector<uint32_t>{number}));
  }
  // The next switch knows of the link, and carries the rest.
  switch_ = std::make_unique<Switch>(place_, VirtualClock::now() + kSecond);
  for (int i = 0; i < 100 && !(one.port->link_up() && other.port->link_up()); ++i) {
    turn();
    VirtualClock::advance(50 * kMillisecond);
  }
  ASSERT_TRUE(one.port->link_up() && other.port->link_up());
  settle();
  ASSERT_TRUE(one.send(other, 7, wire::kManagementQpn) && one.send(other, 8));
  settle();
  EXPECT_EQ(other.receive().size(), 2U);
  EXPECT_EQ(forwarded(), 1U);
  EXPECT_EQ(one.port->links(), 1U);
  // When the peer ends, the link does.
  processes_.pop_back();
  settle();
  EXPECT_EQ(one.port->links(), 0U);
}

TEST_F(Wires, LastWordsOfAProcessArrive) {
  Process& one = attach();
  Process& other = attach();
  link(one, other);
  ASSERT_TRUE(other.send(one, 5) && other.send(one, 6));
  processes_.pop_back();
  settle();
  EXPECT_EQ(one.receive(), (std::vector<uint32_t>{5, 6}));
  settle();
  EXPECT_EQ(one.port->links(), 0U);
}

TEST_F(Wires, AnIdleLinkIsClosedAndMadeAgain) {
  Process& one = attach();
  Process& other = attach();
  link(one, other);
  settle();
  VirtualClock::advance(WirePort::kIdleNs - 1);
  settle();
  EXPECT_EQ(one.port->links(), 1U);
  VirtualClock::advance(1);
  settle();
  EXPECT_EQ(one.port->links(), 0U);
  EXPECT_EQ(other.port->links(), 0U);
  link(one, other);
}

TEST_F(Wires, APeerThatBreaksTheRulesGetsNoOtherLink) {
  Process& one = attach();
  Process& other = attach();
  Process& third = attach();
  link(one, other);
  // Its link carries a packet with the address of a third process.
  ASSERT_TRUE(other.send(roce_frame(third.grant(), one.grant(), 66, 77, [&](wire::PathHeader& path) {
    path.source_mac.bytes = other.grant().mac;
  })));
  EXPECT_TRUE(one.receive().empty());
  settle();
  EXPECT_EQ(one.port->peer_violations(), 1U);
  EXPECT_EQ(one.port->links(), 0U);
  EXPECT_EQ(other.port->links(), 0U);
  for (uint32_t number = 0; number < 5; ++number) {
    ASSERT_TRUE(one.send(other, number));
    settle();
    EXPECT_EQ(other.receive(), (std::vector<uint32_t>{number}));
  }
  EXPECT_EQ(one.port->links(), 0U);
  ASSERT_TRUE(third.send(one, 1));
  settle();
  EXPECT_EQ(one.port->links(), 1U);
}

// A doorbell that another process has cleared delays a frame until the next look after all links.
TEST_F(Wires, ALostDoorbellLosesNoFrame) {
  Process& one = attach();
  Process& other = attach();
  link(one, other);
  for (uint32_t looks = 0; looks <= ActiveRings::kIdleLooks; ++looks) EXPECT_TRUE(other.receive().empty());
  ASSERT_TRUE(one.send(other, 4));
  other.attachment->inbox().take_rings([](uint32_t) {});
  EXPECT_TRUE(other.receive().empty());
  other.maintain();
  EXPECT_EQ(other.receive(), (std::vector<uint32_t>{4}));
}

TEST_F(Wires, TheSwitchFindsAFrameWhoseDoorbellWasLost) {
  Process& one = attach();
  Process& other = attach();
  for (uint32_t looks = 0; looks <= ActiveRings::kIdleLooks; ++looks) switch_->turn();
  ASSERT_TRUE(one.send(other, 4, wire::kManagementQpn));
  switch_->clear_doorbells();
  switch_->turn();
  EXPECT_TRUE(other.receive().empty());
  VirtualClock::advance(FrameSwitch::kLookNs);
  switch_->turn();
  EXPECT_EQ(other.receive(), (std::vector<uint32_t>{4}));
}

TEST_F(Wires, TwoHundredProcessesTalkEachToTheNext) {
  constexpr size_t kProcesses = 200;
  for (size_t i = 0; i < kProcesses; ++i) attach();
  for (uint32_t round = 0; round < 2; ++round) {
    for (size_t i = 0; i < kProcesses; ++i)
      ASSERT_TRUE(processes_[i]->send(*processes_[(i + 1) % kProcesses], static_cast<uint32_t>(i)));
    settle();
    for (size_t i = 0; i < kProcesses; ++i)
      EXPECT_EQ(processes_[(i + 1) % kProcesses]->receive(),
                (std::vector<uint32_t>{static_cast<uint32_t>(i)}));
  }
  for (const auto& process : processes_) EXPECT_EQ(process->port->links(), 2U);
}

/// The memory of each seat's ring, by inode. The kernel counts inodes for each CPU apart, so a later seat may
/// have a lower one.
std::map<unsigned long, uint8_t*> rings_of_seats() {
  std::map<unsigned long, uint8_t*> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:faultline-seat") == std::string::npos) continue;
    unsigned long inode = 0;
    std::istringstream fields(line);
    std::string range, mode, offset, device;
    fields >> range >> mode >> offset >> device >> inode;
    found[inode] = reinterpret_cast<uint8_t*>(std::stoul(range, nullptr, 16));
  }
  return found;
}

/// Moves the index of the ring to the switch beyond the ring, in the seat that is not among the earlier ones.
void break_ring_besides(const std::map<unsigned long, uint8_t*>& earlier) {
  auto rings = rings_of_seats();
  std::erase_if(rings, [&](const auto& ring) { return earlier.contains(ring.first); });
  ASSERT_EQ(rings.size(), 1U);
  // After both ends' flags comes the ring from side 0, and then the one from side 1.
  const uint64_t ring = 128 + memif::ring_bytes(SharedRing::kSeat.log2_size);
  auto* const tail =
      reinterpret_cast<uint16_t*>(rings.begin()->second + ring + offsetof(memif::RingHeader, tail));
  __atomic_store_n(tail, static_cast<uint16_t>(*tail + 1000), __ATOMIC_RELEASE);
}

TEST_F(Wires, ASeatWhoseRingHoldsGarbageEndsAloneAndIsTakenAgain) {
  Process& one = attach();
  const auto earlier = rings_of_seats();
  Process& other = attach();
  const uint32_t seat = other.grant().port;
  link(one, other);
  const uint32_t seats = other.attachment->seat_count();
  break_ring_besides(earlier);
  settle();
  settle();
  EXPECT_EQ(other.attachment->seat_count(), seats + 1);
  EXPECT_EQ(other.grant().port, seat);
  EXPECT_TRUE(other.port->link_up() && one.port->link_up());
  ASSERT_TRUE(one.send(other, 1));
  settle();
  EXPECT_EQ(other.receive(), (std::vector<uint32_t>{1}));
}

}  // namespace
}  // namespace faultline::glue::test::wire_port_test
