// SPDX-License-Identifier: BSD-3-Clause
// An uplink by UDP sockets, on addresses of the loopback interface that no other process has: programs of the
// switch under one address, and a socket of the test as their peer.
#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <poll.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include "apps/switch/frame_switch.hpp"
#include "apps/switch/uplink/uplink.hpp"
#include "pmd_glue/direct/shared_ring.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/link/host_address.hpp"
#include "pmd_glue/ports/udp/udp_socket.hpp"
#include "stack/wire/link/address_text.hpp"
#include "stack/wire/link/datagram.hpp"
#include "stack/wire/link/steering.hpp"
#include "stack/wire/packet/packet.hpp"
#include "tests/unit/direct/direct_frames.hpp"
#include "tests/unit/engine/eal_pool.hpp"

namespace faultline::glue::test::socket_uplink_test {
namespace {

using switching::FrameSwitch;
using switching::PortIndex;

/// Returns an address of 127.0.0.0/8 for this process.
wire::Gid loopback(uint32_t host) {
  return wire::Gid::from_ipv4(0x7f400000U | (static_cast<uint32_t>(getpid()) & 0xffffU) << 4U | host);
}

const IpNetwork kHost{loopback(1), 104};
const wire::Gid kPeer = loopback(2);

Config config_of_sockets() {
  Config config;
  config.path = "test";
  config.eal.memory_mib = 64;
  config.devices.resize(1);
  DeviceConfig& uplink = config.devices[0];
  uplink.name = "uplink";
  uplink.port.kind = PortKind::udp;
  uplink.port.interface = "lo";
  uplink.addresses = {kHost};
  uplink.has_host_addresses = true;
  uplink.mac = mac_of(kHost.gid);
  uplink.mtu_bytes = 1500;
  return config;
}

UniqueFd copy_of(int fd) {
  return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}
UniqueFd new_event() {
  return UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

/// A datagram as a sender by sockets seals it, with `number` as its payload.
Bytes datagram(const wire::Gid& from, const wire::Gid& to, uint32_t number, uint32_t qpn) {
  wire::PathHeader path;
  path.source_mac = mac_of(from);
  path.destination_mac = mac_of(to);
  path.source_gid = from;
  path.destination_gid = to;
  const wire::FrameTemplate made(path, static_cast<uint8_t>(wire::Checksums::by_socket));
  wire::PacketFields fields;
  fields.bth.opcode = wire::Opcode::ud_send_only;
  fields.bth.destination_qpn = qpn;
  fields.ipv4_identification = static_cast<uint16_t>(number);
  Bytes frame(made.frame_bytes(fields.bth.opcode, sizeof number));
  std::memcpy(made.write_headers(frame, fields, sizeof number), &number, sizeof number);
  made.seal(frame, fields.bth.opcode, sizeof number);
  return frame;
}
Bytes to_peer(uint32_t number, uint32_t qpn) {
  return datagram(kHost.gid, kPeer, number, qpn);
}

/// A program's end of its ring to the switch.
struct Program {
  SwitchGrant grant;
  PortIndex port = 0;
  std::unique_ptr<Inbox> inbox = Inbox::create();
  UniqueFd memory = create_sealed_memory("seat", kSeatBytes);
  std::unique_ptr<SharedRing> ring;

  [[nodiscard]] bool send(const Bytes& bytes) const {
    rte_mbuf* frame = mbuf_of(pool(), bytes);
    const bool sent = ring->transmit({&frame, 1}) == 1;
    if (!sent) rte_pktmbuf_free(frame);
    return sent;
  }
  [[nodiscard]] std::vector<Bytes> receive() const {
    std::array<rte_mbuf*, 32> burst;
    std::vector<Bytes> frames;
    while (const size_t received = ring->receive(pool(), 0, burst))
      for (size_t i = 0; i < received; ++i) frames.push_back(take_bytes(burst[i]));
    return frames;
  }
};

class SocketUplink : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(frames_, nullptr);
    if (!is_host_address(kHost.gid, wire::kRoceUdpPort)) GTEST_SKIP() << "the loopback interface is down";
    std::string error;
    ASSERT_TRUE(switch_.open_uplink(config_.devices[0], error)) << error;
    ASSERT_TRUE(switch_.open_host(config_.devices[0], {}, error)) << error;
    peer_ = UdpSocket::open(kPeer, 0, frames_, error);
    ASSERT_NE(peer_, nullptr) << error;
  }

  Program& attach() {
    Program& program = *programs_.emplace_back(std::make_unique<Program>());
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
  void turn() {
    now_ += 10'000;
    while (switch_.turn(now_)) continue;
  }
  void send_from_peer(const std::vector<Bytes>& frames) {
    std::vector<rte_mbuf*> burst;
    for (const Bytes& frame : frames) burst.push_back(mbuf_of(frames_, frame));
    for (size_t sent = 0; sent < burst.size();) sent += peer_->transmit(std::span(burst).subspan(sent));
  }
  /// What the peer's socket has received, as frames. The loopback interface hands a datagram over at once.
  [[nodiscard]] std::vector<Bytes> at_peer() const {
    std::array<rte_mbuf*, 32> burst;
    std::vector<Bytes> frames;
    while (const size_t received = peer_->receive(mac_of(kPeer), 0, burst))
      for (size_t i = 0; i < received; ++i) frames.push_back(take_bytes(burst[i]));
    return frames;
  }
  /// True if the ICRC fits the headers of the frame.
  static bool is_right(const Bytes& frame) {
    wire::Packet packet;
    return wire::parse(frame, packet) == wire::ParseError::none && wire::icrc_matches(packet);
  }

  rte_mempool* const frames_ = pool();  ///< first: EAL must run before the switch is made
  const Config config_ = config_of_sockets();
  std::unique_ptr<Inbox> inbox_ = Inbox::create();
  FrameSwitch switch_{config_, *inbox_};
  std::unique_ptr<UdpSocket> peer_;
  std::vector<std::unique_ptr<Program>> programs_;
  TimeNs now_ = 1'000'000'000;
};

TEST_F(SocketUplink, ProgramsSendUnderOneAddressWithRightIcrcs) {
  Program& one = attach();
  Program& other = attach();
  EXPECT_NE(one.grant.range, other.grant.range);
  for (const Program* program : {&one, &other}) {
    EXPECT_NE(program->grant.by_sockets, 0U);
    EXPECT_NE(program->grant.uplink_up, 0U);
    EXPECT_GE(program->grant.window_packets, 8U);
  }
  // Several a turn leave as a train.
  for (uint32_t number = 0; number < 20; ++number)
    ASSERT_TRUE(one.send(to_peer(number, 1)) && other.send(to_peer(number, 2)));
  turn();
  std::map<uint32_t, uint32_t> next;
  for (const Bytes& frame : at_peer()) {
    EXPECT_TRUE(is_right(frame));
    EXPECT_EQ(wire::peek_source_gid(frame), kHost.gid);
    EXPECT_EQ(number_of(frame), next[wire::peek_destination_qpn(frame)]++);
  }
  EXPECT_EQ(next[1], 20U);
  EXPECT_EQ(next[2], 20U);
}

TEST_F(SocketUplink, PacketsOfAPeerReachTheProgramOfTheRange) {
  Program& one = attach();
  Program& other = attach();
  std::vector<Bytes> frames;
  for (uint32_t number = 0; number < 10; ++number)
    for (const Program* program : {&one, &other})
      frames.push_back(datagram(kPeer, kHost.gid, number, program->grant.first_qpn() + 7));
  send_from_peer(frames);
  turn();
  for (const Program* program : {&one, &other}) {
    const std::vector<Bytes> received = program->receive();
    ASSERT_EQ(received.size(), 10U);
    for (uint32_t number = 0; number < 10; ++number) {
      EXPECT_EQ(number_of(received[number]), number);
      EXPECT_TRUE(is_right(received[number]));
      EXPECT_EQ(wire::peek_ethernet(received[number])->destination.bytes, program->grant.mac);
    }
  }
}

TEST_F(SocketUplink, TheStatusHasTheAddressAndTheCounts) {
  const Program& one = attach();
  ASSERT_TRUE(one.send(to_peer(1, 1)));
  turn();
  switching::SwitchStatus status;
  status.wire = "w";
  status.seats = {{.port = one.port, .grant = one.grant, .counters = {}}};
  switch_.describe(status);
  ASSERT_TRUE(status.uplink);
  EXPECT_EQ(status.uplink->port, "udp:" + text_of(kHost.gid));
  EXPECT_TRUE(status.uplink->is_up);
  EXPECT_EQ(status.uplink->mac, mac_of(kHost.gid));
  EXPECT_EQ(status.uplink->counters.received.frames, 1U);
  EXPECT_EQ(status.seats[0].counters.sent.frames, 1U);
  EXPECT_NE(json_of(status).find("\"refused\":0"), std::string::npos);
  EXPECT_NE(switching::text_of(status).find(text_of(kHost.gid) + ": sent 1 frames"), std::string::npos);
}

// Frames at the sockets wake the switch, so that it need not poll them.
TEST_F(SocketUplink, AnIdleSwitchSleepsUntilADatagramArrives) {
  EXPECT_FALSE(switch_.needs_polling());
  pollfd readable{.fd = switch_.uplink_descriptor(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&readable, 1, 0), 0);
  send_from_peer({datagram(kPeer, kHost.gid, 1, 77)});
  EXPECT_EQ(poll(&readable, 1, 0), 1);
  turn();
  EXPECT_EQ(poll(&readable, 1, 0), 0);
  EXPECT_FALSE(switch_.needs_polling());
  // A program's frame that waits for its rate keeps the switch awake.
  switch_.set_rates({.program_mbps = 1});
  const Program& one = attach();
  for (uint32_t number = 0; number < 200; ++number) ASSERT_TRUE(one.send(to_peer(number, 1)));
  turn();
  EXPECT_TRUE(switch_.needs_polling());
}

// The sockets change the ICRC of a packet in a train, and a multicast frame is for other ports too.
TEST_F(SocketUplink, AFrameThatOtherPortsHaveTooIsCopied) {
  Config config = config_;
  config.devices[0].addresses[0].gid = loopback(3);
  std::string error;
  const auto uplink = switching::Uplink::open(config, config.devices[0], error);
  ASSERT_NE(uplink, nullptr) << error;
  rte_mbuf* const frame = mbuf_of(frames_, to_peer(1, 1));
  EXPECT_EQ(uplink->prepare(frame), frame);
  rte_mbuf_refcnt_update(frame, 1);
  rte_mbuf* const copy = uplink->prepare(frame);
  EXPECT_NE(copy, frame);
  EXPECT_EQ(rte_mbuf_refcnt_read(frame), 1);
  EXPECT_EQ(take_bytes(copy), take_bytes(frame));
}

}  // namespace
}  // namespace faultline::glue::test::socket_uplink_test
