// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/host/host.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>

#include "stack/transport/qp/queue_pair.hpp"

namespace faultline::fabric {
namespace {

using namespace transport;

constexpr size_t kBurst = 32;
constexpr odp::ProtectionDomain kDomain = 1;
constexpr odp::Key kKey = 0x100;
constexpr uint64_t kAddress = 0x10000;
/// Until the next turn of a core whose timers are hidden by a full transmit ring.
constexpr TimePs kFullRingPs = 10'000'000;

CoreConfig core_config(const Description& description, const HostSize& size) {
  CoreConfig config;
  config.congestion = description.congestion;
  config.window_packets = description.host.window_packets;
  config.reorder_packets_per_qp = std::min(config.reorder_packets_per_qp, description.host.window_packets);
  config.selective_ack = description.host.selective_ack;
  config.max_qps = std::max(size.qps, 1U);
  config.recorder = size.recorder;
  config.qp_memory = size.memory;
  // No payload is there for an ICRC to protect, and no link damages a bit.
  config.wire_checksums =
      static_cast<uint8_t>(wire::Checksums::ip_in_software) | static_cast<uint8_t>(wire::Checksums::no_icrc);
  config.verify_icrc = false;
  return config;
}

SendOpcode opcode_of(Operation operation) {
  switch (operation) {
    case Operation::write:
      return SendOpcode::rdma_write;
    case Operation::write_imm:
      return SendOpcode::rdma_write_with_imm;
    case Operation::send:
      return SendOpcode::send_with_imm;
    case Operation::read:
      return SendOpcode::rdma_read;
  }
  return SendOpcode::rdma_write;
}

TimePs whole_ns(TimePs time_ps) {
  return (time_ps + 999) / 1000 * 1000;
}

}  // namespace

Host::Host(uint32_t index, const Description& description, const HostSize& size, Fabric& fabric,
           BufferPool& buffers, EventQueue& events, Program& program)
    : index_(index),
      turn_ps_(ps_of(description.host.turn_ns)),
      ring_frames_(description.host.nic_frames),
      fabric_(fabric),
      events_(events),
      program_(program),
      nic_(index, description.host.nic_frames, fabric, buffers),
      cq_(size.completions + 1, size.memory),
      core_(core_config(description, size), memory_, nic_) {}

QueuePair* Host::create_end(const EndInit& init) {
  QpInit qp;
  qp.domain = kDomain;
  qp.send_cq = qp.receive_cq = &cq_;
  qp.max_send_wr = init.send_requests;
  qp.max_receive_wr = init.receive_requests;
  QueuePair* const created = core_.create_qp(qp);
  if (created == nullptr) throw std::bad_alloc();
  return created;
}

int Host::connect(QueuePair* qp, const AddressVector& path, uint32_t peer_qpn,
                  const HostParameters& parameters, uint8_t reads) {
  QpAttributes attributes;
  attributes.state = QpState::init;
  attributes.access_flags = odp::kRemoteWrite | odp::kRemoteRead;
  constexpr uint32_t kInitMask = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
  if (const int error = core_.modify_qp(qp, attributes, kInitMask, 0); error != 0) return error;
  attributes.state = QpState::rtr;
  attributes.av = path;
  attributes.path_mtu = parameters.mtu;
  attributes.destination_qpn = peer_qpn;
  attributes.max_dest_rd_atomic = attributes.max_rd_atomic = reads;
  constexpr uint32_t kRtrMask = kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn |
                                kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
  if (const int error = core_.modify_qp(qp, attributes, kRtrMask, 0); error != 0) return error;
  attributes.state = QpState::rts;
  attributes.timeout = parameters.timeout;
  attributes.retry_count = parameters.retry_count;
  constexpr uint32_t kRtsMask =
      kAttrState | kAttrSqPsn | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMaxQpRdAtomic;
  return core_.modify_qp(qp, attributes, kRtsMask, 0);
}

void Host::post_send(QueuePair* qp, const Message& message, TimePs now_ps) {
  SendRing& ring = send_ring_of(qp);
  SendWqe* const wqe = ring.prepare();
  if (wqe == nullptr) throw std::logic_error("faultline-sim: a work request was posted to a full ring");
  *wqe = SendWqe{};
  wqe->wr_id = message.wr_id;
  wqe->opcode = opcode_of(message.operation);
  wqe->flags = kSignaled;
  wqe->remote_va = kAddress;
  wqe->rkey = kKey;
  wqe->immediate_or_rkey = message.immediate;
  wqe->length_bytes = message.bytes;
  wqe->sge_count = 1;
  *ring.sges_of(wqe) = {.va = kAddress, .length_bytes = message.bytes, .lkey = kKey};
  ring.advance();
  ring.publish();
  core_.ring_doorbell(qp);
  wake(now_ps);
}

void Host::post_receive(QueuePair* qp, uint64_t wr_id) {
  constexpr uint32_t kReceiveBytes = 1U << 31;
  ReceiveRing& ring = receive_ring_of(qp);
  ReceiveWqe* const wqe = ring.prepare();
  if (wqe == nullptr) throw std::logic_error("faultline-sim: a receive was posted to a full ring");
  *wqe = {.wr_id = wr_id, .sge_count = 1, .length_bytes = kReceiveBytes};
  *ring.sges_of(wqe) = {.va = kAddress, .length_bytes = kReceiveBytes, .lkey = kKey};
  ring.advance();
  ring.publish();
  core_.ring_doorbell(qp);
}

void Host::on_frame(Frame& frame, TimePs now_ps) {
  inbox_.push(frame);
  wake(now_ps);
}

/// A core that found the ring full goes on when half of it is free, so that a turn sends several frames.
void Host::on_frame_sent(TimePs now_ps) {
  if (!waits_for_ring_ || fabric_.ring_frames(index_) > ring_frames_ / 2) return;
  waits_for_ring_ = false;
  wake(now_ps);
}

void Host::wake(TimePs at_ps) {
  if (is_in_turn_) return;  // its end looks at all work that is left
  at_ps = whole_ns(std::max(at_ps, last_turn_ps_ + turn_ps_));
  if (at_ps >= due_ps_) return;
  due_ps_ = at_ps;
  events_.add(at_ps, EventKind::turn, index_);
}

void Host::on_turn(TimePs now_ps) {
  if (now_ps != due_ps_) return;
  due_ps_ = kNeverPs;
  last_turn_ps_ = now_ps;
  ++turns_;
  is_in_turn_ = true;
  nic_.begin_turn(now_ps);
  receive(ns_of(now_ps));
  take_completions(now_ps);
  core_.poll(ns_of(now_ps));
  take_completions(now_ps);
  is_in_turn_ = false;
  plan_turn(now_ps);
}

void Host::receive(TimeNs now) {
  while (!inbox_.empty()) {
    std::array<RxFrame, kBurst> burst;
    size_t count = 0;
    for (; count < kBurst && !inbox_.empty(); ++count) {
      burst[count] = Nic::received(inbox_.pop());
    }
    core_.on_packets(std::span(burst).first(count), now);
  }
}

void Host::take_completions(TimePs now_ps) {
  std::array<Completion, kBurst> some;
  while (const uint32_t count = cq_.poll(some))
    for (uint32_t i = 0; i < count; ++i) program_.on_completion(index_, some[i], now_ps);
}

void Host::plan_turn(TimePs now_ps) {
  waits_for_ring_ = nic_.was_full();
  const TimeNs deadline = core_.next_deadline();
  if (deadline == kNever) return;
  if (deadline > ns_of(now_ps)) return wake(ps_of(deadline));
  // The core has more to send: the next turn does, or waits for the ring.
  wake(waits_for_ring_ ? now_ps + kFullRingPs : now_ps);
}

}  // namespace faultline::fabric
