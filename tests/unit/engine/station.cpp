// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/engine/station.hpp"

#include <array>

#include "stack/wire/link/link.hpp"
#include "tests/sim/world/take_to_rts.hpp"

namespace faultline::glue::test {
namespace {

using namespace transport;

// Losses are recovered by the ACK timeout alone, so the time of each retransmission is known.
Config config_of(const StationSetup& setup) {
  Config config;
  config.core.early_probe = false;
  config.core.selective_ack = false;
  config.udp_checksum = setup.udp_checksum;
  return config;
}

DeviceConfig device_of(const StationSetup& setup) {
  DeviceConfig device;
  device.name = "station";
  for (const std::string& address : setup.addresses) device.addresses.push_back(*parse_address(address));
  device.mac = mac_of(device.addresses[0].gid);
  device.vlan_id = setup.vlan_id;
  device.chaos = setup.chaos;
  device.min_ack_timeout_ns = setup.min_ack_timeout_ns;
  return device;
}

}  // namespace

Station::Station(const Setup& setup)
    : config(config_of(setup)),
      device(device_of(setup)),
      addresses(device.mac, vlan_tag_of(device), device.addresses, device.routes),
      port(pool(), setup.offloads),
      engine(config, device, nullptr, addresses, port, memory, setup.capture, CoreSlot{}) {}

bool Station::turn(PollEngine::Turn whose) {
  const bool moved = engine.turn(whose);
  memory.leave();
  return moved;
}

AddressVector Station::path_to(const Station& peer) const {
  AddressVector to;
  to.path.source_gid = gid();
  to.path.destination_gid = peer.gid();
  to.path.source_mac = mac();
  to.path.destination_mac = peer.mac();
  to.path.has_vlan = addresses.vlan().present;
  to.path.vlan_tci = addresses.vlan().tci;
  to.loopback = &peer == this;
  return to;
}

size_t carry(Station& from, Station& to, const Loss& loses) {
  const std::vector<Frame> frames = from.port.take_sent();
  for (const Frame& frame : frames)
    if (!loses || !loses(frame)) to.port.deliver(frame);
  return frames.size();
}

void settle(Station& a, Station& b, const Loss& loses) {
  constexpr int kMostRounds = 10'000;
  // A turn may leave work to the next one, so one quiet round is not the end.
  for (int rounds = 0, quiet = 0; quiet < 2; ++rounds) {
    ASSERT_LT(rounds, kMostRounds) << "the stations do not come to rest";
    a.turn();
    b.turn();
    const size_t carried = carry(a, b, loses) + carry(b, a, loses);
    quiet = carried == 0 && a.port.waiting() == 0 && b.port.waiting() == 0 ? quiet + 1 : 0;
  }
}

TestQp::TestQp(Station& station, QpType type) : station_(station) {
  QpInit init;
  init.type = type;
  init.domain = PlainMemory::kDomain;
  init.send_cq = &sends_;
  init.receive_cq = &receives_;
  init.max_send_wr = init.max_receive_wr = 512;
  qp_ = station.engine.core().create_qp(init);
  EXPECT_NE(qp_, nullptr);
}

TestQp::~TestQp() {
  Core& core = station_.engine.core();
  core.destroy_qp(qp_);
  core.forget_cq(sends_);
  core.forget_cq(receives_);
}

void TestQp::take_to_rts(const QpAttributes& attributes) {
  EXPECT_EQ(sim::take_to_rts(station_.engine.core(), qp_, attributes, VirtualClock::now()), 0);
}

void TestQp::connect(const TestQp& peer, const Station& to, uint8_t timeout) {
  QpAttributes attributes;
  attributes.access_flags = odp::kRemoteWrite;
  attributes.av = station_.path_to(to);
  attributes.path_mtu = PathMtu::mtu1024;
  attributes.destination_qpn = peer.qpn();
  attributes.timeout = timeout;
  take_to_rts(attributes);
}

void TestQp::activate() {
  QpAttributes attributes;
  attributes.qkey = kQkey;
  take_to_rts(attributes);
}

void TestQp::post_receive() {
  ReceiveRing& ring = receive_ring_of(qp_);
  constexpr uint32_t kGrhAndMore = 64;
  ReceiveWqe& wqe = *ring.prepare();
  wqe = {.sge_count = 1, .length_bytes = kGrhAndMore};
  *ring.sges_of(&wqe) = {PlainMemory::kVa, kGrhAndMore, PlainMemory::kKey};
  ring.advance();
  ring.publish();
  station_.engine.core().ring_doorbell(qp_);
}

SendWqe& TestQp::prepare(SendOpcode opcode) {
  SendWqe& wqe = *send_ring_of(qp_).prepare();
  wqe = {};
  wqe.opcode = opcode;
  wqe.flags = kSignaled;
  return wqe;
}

void TestQp::publish() {
  send_ring_of(qp_).advance();
  send_ring_of(qp_).publish();
  station_.engine.core().ring_doorbell(qp_);
}

void TestQp::send() {
  prepare(SendOpcode::send);
  publish();
}

void TestQp::write(uint32_t length_bytes) {
  SendWqe& wqe = prepare(SendOpcode::rdma_write);
  wqe.remote_va = PlainMemory::kVa;
  wqe.rkey = PlainMemory::kKey;
  wqe.length_bytes = length_bytes;
  wqe.sge_count = 1;
  *send_ring_of(qp_).sges_of(&wqe) = {PlainMemory::kVa, length_bytes, PlainMemory::kKey};
  publish();
}

void TestQp::send_datagram(const AddressVector& to, uint32_t qpn) {
  SendWqe& wqe = prepare(SendOpcode::send);
  wqe.ud_qpn = qpn;
  wqe.ud_qkey = kQkey;
  send_ring_of(qp_).av_of(&wqe) = to;
  publish();
}

Statuses TestQp::poll(CompletionQueue& queue) {
  Statuses all;
  Completion completion;
  while (queue.poll({&completion, 1}) == 1) all.push_back(completion.status);
  return all;
}

}  // namespace faultline::glue::test
