// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: a live core with RC, UC, UD and XRC QPs, and a script of what a peer, a program, a pager
// and the clock may do to it. Packets are well-formed ones with any meaning, such ones with bytes turned
// over, or any bytes. Whatever comes: no byte outside what a region allows, no buffer lost, no state that is
// not one.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "stack/transport/core/core.hpp"
#include "stack/transport/qp/queue_pair.hpp"
#include "stack/transport/qp/shared_receive_queue.hpp"
#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/checksum.hpp"
#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/icrc.hpp"
#include "stack/wire/packet/layout.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_port.hpp"
#include "tests/sim/world/scripted_memory.hpp"
#include "tests/sim/world/take_to_rts.hpp"

namespace faultline::fuzz {
namespace {

using namespace transport;

constexpr uint32_t kRegionBytes = 16384;
constexpr uint32_t kQkey = 0x11111111;
constexpr uint32_t kPeerQpn = 0x010203;

/// Packets given to cores over the whole run, told at the end.
struct Tally {
  ~Tally() { std::fprintf(stderr, "packets %llu\n", static_cast<unsigned long long>(packets)); }
  uint64_t packets = 0;
} tally;

wire::PathHeader path(bool to_us) {
  wire::PathHeader header;
  header.source_mac.bytes = {2, 0, 0, 0, 0, 2};
  header.destination_mac.bytes = {2, 0, 0, 0, 0, 1};
  header.source_gid = wire::Gid::from_ipv4(to_us ? 0xc6120002 : 0xc6120001);
  header.destination_gid = wire::Gid::from_ipv4(to_us ? 0xc6120001 : 0xc6120002);
  return header;
}

/// Everything that an input works on. Made anew for each, but for the core's table.
class Bed {
 public:
  /// `by_socket`: the core receives as by a socket, which hides the IPv4 identification.
  explicit Bed(bool by_socket)
      : by_socket_(by_socket),
        memory_(sim::MemoryScript{}, sim::Random(1)),
        core_(config(by_socket), memory_, port_) {
    port_.rxe_flush_icrc = config(by_socket).rxe_flush_icrc;
    open_ = &region(odp::kLocalWrite | odp::kRemoteWrite | odp::kRemoteRead | odp::kRemoteAtomic |
                        odp::kMemoryWindowBind | odp::kFlushGlobal,
                    false);
    paged_ = &region(odp::kLocalWrite | odp::kRemoteWrite | odp::kRemoteRead | odp::kRemoteAtomic, true);
    local_ = &region(odp::kLocalWrite, false);
    forbidden_ = &region(odp::kLocalRead, false);
    canary_ = forbidden_->bytes;
    window_ = &memory_.add_window(1, odp::WindowType::type2);
    srq_ =
        core_.create_srq({.domain = 1, .max_wr = 8, .max_sge = 2, .limit = 2, .cq = &cq_, .xrc_domain = 5});
    const std::array types{QpType::rc, QpType::rc,       QpType::uc,
                           QpType::ud, QpType::xrc_send, QpType::xrc_recv};
    for (size_t i = 0; i < types.size(); ++i) {
      QpInit init;
      init.type = types[i];
      init.domain = 1;
      init.send_cq = init.receive_cq = &cq_;
      init.max_send_wr = init.max_receive_wr = 16;
      init.max_send_sge = init.max_receive_sge = 2;
      init.max_inline_bytes = 64;
      if (i == 1) init.srq = srq_;
      if (types[i] == QpType::xrc_recv) init.xrc_domain = 5;
      qps_.push_back(core_.create_qp(init));
      require(qps_.back() != nullptr, "a QP can be made");
      connect(*qps_.back());
    }
  }
  ~Bed() {
    for (QueuePair* qp : qps_) core_.destroy_qp(qp);
    core_.destroy_srq(srq_);
    require(port_.lent == 0, "every received buffer comes back");
  }

  void run(FuzzInput& input) {
    while (!input.empty()) step(input);
    for (int i = 0; i < 4; ++i) advance(50'000'000);
    require(forbidden_->bytes == canary_, "nobody writes where no right is");
    for (const QueuePair* qp : qps_)
      require(static_cast<uint8_t>(state_of(qp)) <= static_cast<uint8_t>(QpState::err), "a state is one");
  }

 private:
  static CoreConfig config(bool by_socket) {
    CoreConfig config;
    if (by_socket) config.wire_checksums |= static_cast<uint8_t>(wire::Checksums::by_socket);
    config.rxe_flush_icrc = by_socket;
    config.park_packets_total = 64;
    config.max_qps = 32;
    config.park_packets_per_qp = 16;
    config.reorder_packets_per_qp = 32;
    config.congestion.algorithm = CongestionAlgorithm::dcqcn;
    return config;
  }
  sim::Region& region(uint32_t access, bool on_demand) {
    sim::Region& made = memory_.add_region(1, access, on_demand);
    sim::Random random(access);
    made.extend(kRegionBytes, random);
    return made;
  }

  void connect(QueuePair& qp) {
    QpAttributes attributes;
    attributes.qkey = kQkey;
    attributes.access_flags = odp::kRemoteWrite | odp::kRemoteRead | odp::kRemoteAtomic | odp::kFlushGlobal;
    attributes.av.path = path(false);
    attributes.path_mtu = PathMtu::mtu1024;
    attributes.destination_qpn = kPeerQpn;
    attributes.rq_psn = attributes.sq_psn = 0xfffff0;
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 3;
    attributes.timeout = 8;
    attributes.retry_count = 2;
    attributes.rnr_retry = 2;
    attributes.min_rnr_timer = 1;
    require(sim::take_to_rts(core_, &qp, attributes, now_ns_) == 0, "a QP can be connected");
  }

  void step(FuzzInput& input) {
    const uint8_t what = input.byte();
    switch (what & 15) {
      default:
        return packet(input);
      case 9: {
        const std::span<const uint8_t> raw = input.bytes(2 + input.below(200));
        return deliver(std::vector<uint8_t>(raw.begin(), raw.end()));
      }
      case 10:
        return golden(input);
      case 11:
        return post_send(input);
      case 12:
        return post_receive(input);
      case 13:
        return advance(uint64_t{input.take<uint16_t>()} * 1000);
      case 14:
        port_.starved = (what & 16) != 0;
        port_.full = (what & 32) != 0;
        if ((what & 64) != 0) paged_->set_pages(paged_->base, kRegionBytes, sim::PageState::absent);
        return;
      case 15:
        return change_state(input);
    }
  }

  [[nodiscard]] QueuePair& pick(FuzzInput& input) { return *qps_[input.byte() % qps_.size()]; }
  [[nodiscard]] odp::Key key(FuzzInput& input) {
    const std::array keys{open_->key,   paged_->key,     local_->key,           forbidden_->key,
                          window_->key, open_->key ^ 1U, input.take<uint32_t>()};
    return keys[input.byte() % keys.size()];
  }
  [[nodiscard]] uint64_t address(FuzzInput& input) {
    const std::array bases{open_->base, paged_->base, local_->base, forbidden_->base};
    return bases[input.byte() % bases.size()] + input.take<int16_t>();
  }

  /// A packet of any opcode and meaning, near where its QP stands.
  void packet(FuzzInput& input) {
    QueuePair& qp = pick(input);
    const uint8_t opcode = input.byte();
    const uint8_t flags = input.byte();
    const wire::OpcodeInfo& info = wire::opcode_info(opcode);
    if (!info.known) return;
    wire::PacketFields fields;
    fields.bth.opcode = static_cast<wire::Opcode>(opcode);
    fields.bth.solicited = (flags & 1) != 0;
    fields.bth.ack_request = (flags & 2) != 0;
    fields.bth.selective_ack = (flags & 4) != 0;
    fields.bth.becn = (flags & 8) != 0;
    fields.bth.destination_qpn = (flags & 16) != 0 ? wire::kMulticastQpn : qp.qpn;
    const wire::Psn near = info.request ? qp.responder.expected_psn : qp.requester.unacked_psn;
    fields.bth.psn = near.plus(static_cast<uint32_t>(static_cast<int32_t>(input.take<int8_t>())));
    // Near each other: a peer counts its packets.
    fields.ipv4_identification = static_cast<uint16_t>(fields.bth.psn.value());
    fields.reth = {address(input), key(input), input.take<uint16_t>()};
    fields.atomic_eth = {fields.reth.va & ((flags & 32) != 0 ? ~uint64_t{7} : ~uint64_t{0}), fields.reth.rkey,
                         input.take<uint32_t>(), input.take<uint32_t>()};
    fields.aeth = {input.byte(), input.byte()};
    fields.deth = {(flags & 64) != 0 ? kQkey : input.take<uint32_t>(), kPeerQpn};
    fields.immediate = fields.invalidate_rkey = key(input);
    fields.feth = {input.byte(), input.byte()};
    fields.xrc_srq_number = (flags & 64) != 0 ? srq_->number : input.byte();
    for (uint64_t& word : fields.sack_eth.map) word = input.take<uint16_t>();
    uint32_t payload_bytes = info.payload == wire::PayloadRule::full_mtu
                                 ? 1024U
                                 : std::min<uint32_t>(input.below(1100), info.payload_max_bytes);
    payload_bytes = std::max<uint32_t>(payload_bytes, info.payload_min_bytes);
    if ((flags & 128) != 0) fields.reth.length_bytes = payload_bytes;
    wire::PathHeader header = path(true);
    header.traffic_class = input.byte() & 3;
    const wire::FrameTemplate frame_template(header);
    std::vector<uint8_t> frame(frame_template.frame_bytes(fields.bth.opcode, payload_bytes));
    uint8_t* payload = frame_template.write_headers(frame, fields, payload_bytes);
    require(payload != nullptr, "a frame holds its packet");
    std::fill_n(payload, payload_bytes, static_cast<uint8_t>(0x5a));
    frame_template.seal(frame, fields.bth.opcode, payload_bytes);
    damage(input, frame);
    deliver(frame);
  }

  /// Turns some bytes over, and makes the ICRC right again or not.
  void damage(FuzzInput& input, std::vector<uint8_t>& frame) {
    const uint8_t how = input.byte();
    if (how < 192) return;
    for (int i = how & 3; i >= 0; --i)
      frame[input.below(static_cast<uint32_t>(frame.size()))] ^= input.byte();
    if ((how & 4) != 0) frame.resize(input.below(static_cast<uint32_t>(frame.size())) + 1);
    if ((how & 8) != 0) mend_icrc(frame);
  }

  static void mend_icrc(std::vector<uint8_t>& frame) {
    wire::Packet parsed;
    if (wire::parse(frame, parsed) != wire::ParseError::none) return;
    const uint32_t icrc = wire::icrc_of_ip_packet(
        std::span<const uint8_t>(frame).subspan(parsed.ip_offset, parsed.icrc_offset - parsed.ip_offset),
        parsed.ipv6);
    for (unsigned i = 0; i < 4; ++i) frame[parsed.icrc_offset + i] = static_cast<uint8_t>(icrc >> 8 * i);
  }

  /// A frame of a capture, turned to one of our QPs and PSNs.
  void golden(FuzzInput& input) {
    QueuePair& qp = pick(input);
    const std::span<const uint8_t> raw = input.bytes(input.take<uint16_t>() % 1200);
    std::vector<uint8_t> frame(raw.begin(), raw.end());
    wire::Packet parsed;
    if (wire::parse(frame, parsed) != wire::ParseError::none) return deliver(frame);
    const wire::Psn near = parsed.info->request ? qp.responder.expected_psn : qp.requester.unacked_psn;
    uint8_t* const bth = frame.data() + parsed.bth_offset;
    for (unsigned i = 0; i < 3; ++i) {
      bth[5 + i] = static_cast<uint8_t>(qp.qpn >> (16 - 8 * i));
      bth[9 + i] = static_cast<uint8_t>(near.value() >> (16 - 8 * i));
    }
    if (!parsed.ipv6) {
      const std::array<uint8_t, 4> source{0xc6, 0x12, 0, 2};
      std::copy(source.begin(), source.end(), frame.begin() + parsed.ip_offset + 12);
      frame[parsed.ip_offset + 10U] = frame[parsed.ip_offset + 11U] = 0;
    }
    mend_icrc(frame);
    deliver(frame);
  }

  static void hide_identification(std::vector<uint8_t>& frame) {
    wire::Packet parsed;
    if (wire::parse(frame, parsed) != wire::ParseError::none || parsed.ipv6) return;
    const auto ip = std::span(frame).subspan(parsed.ip_offset, wire::kIpv4Bytes);
    wire::store_be16(&ip[wire::kIpv4IdentificationAt], 0);
    wire::store_be16(&ip[wire::kIpv4ChecksumAt], 0);
    wire::store_be16(&ip[wire::kIpv4ChecksumAt], static_cast<uint16_t>(~wire::fold_sum(wire::ones_sum(ip))));
  }

  void deliver(std::vector<uint8_t> frame) {
    if (by_socket_) hide_identification(frame);
    std::array<RxFrame, 1> burst{port_.lend(frame)};
    ++tally.packets;
    core_.on_packets(burst, now_ns_);
    core_.poll(now_ns_);
    drain();
  }

  void post_send(FuzzInput& input) {
    QueuePair& qp = pick(input);
    if (qp.type == QpType::xrc_recv || state_of(&qp) < QpState::rts) return;
    SendRing& ring = send_ring_of(&qp);
    SendWqe* wqe = ring.prepare();
    if (wqe == nullptr) return;
    *wqe = SendWqe{};
    constexpr std::array kOpcodes{SendOpcode::rdma_write,
                                  SendOpcode::rdma_write_with_imm,
                                  SendOpcode::send,
                                  SendOpcode::send_with_imm,
                                  SendOpcode::rdma_read,
                                  SendOpcode::atomic_cmp_and_swp,
                                  SendOpcode::atomic_fetch_and_add,
                                  SendOpcode::local_inv,
                                  SendOpcode::bind_mw,
                                  SendOpcode::send_with_inv,
                                  SendOpcode::flush,
                                  SendOpcode::atomic_write};
    wqe->opcode = qp.type == QpType::ud ? SendOpcode::send : kOpcodes[input.byte() % kOpcodes.size()];
    wqe->flags = input.byte() & (kFence | kSignaled | kSolicited);
    wqe->remote_va = address(input);
    wqe->rkey = key(input);
    wqe->immediate_or_rkey = key(input);
    wqe->srq_number = srq_->number;
    if (wqe->opcode == SendOpcode::bind_mw) {
      wqe->window_type = static_cast<uint8_t>(1 + (input.byte() & 1));
      wqe->bind_lkey = key(input);
      wqe->bind_length_bytes = input.take<uint16_t>();
      wqe->bind_access = input.byte();
    } else {
      wqe->flush_placement = input.byte();
      wqe->flush_selectivity = input.byte() & 3;
    }
    const uint32_t most = qp.type == QpType::ud ? 1024 : 8192;
    wqe->length_bytes = input.below(most);
    if (has_answer(wqe->opcode))
      wqe->length_bytes = wqe->opcode == SendOpcode::rdma_read ? wqe->length_bytes : 8;
    wqe->sge_count = 1;
    ring.sges_of(wqe)[0] = {address(input), wqe->length_bytes, key(input)};
    if (qp.type == QpType::ud) {
      wqe->ud_qpn = kPeerQpn;
      wqe->ud_qkey = kQkey;
      ring.av_of(wqe) = {path(false), false};
    }
    ring.advance();
    ring.publish();
    core_.ring_doorbell(&qp);
    advance(100);
  }
  static bool has_answer(SendOpcode opcode) {
    return opcode == SendOpcode::rdma_read || opcode == SendOpcode::atomic_cmp_and_swp ||
           opcode == SendOpcode::atomic_fetch_and_add || opcode == SendOpcode::atomic_write;
  }

  void post_receive(FuzzInput& input) {
    QueuePair& qp = pick(input);
    ReceiveRing& ring = input.byte() % 3 == 0 ? receive_ring_of(srq_) : receive_ring_of(&qp);
    ReceiveWqe* wqe = ring.prepare();
    if (wqe == nullptr) return;
    *wqe = {.wr_id = 1, .sge_count = 1, .length_bytes = input.below(6000)};
    ring.sges_of(wqe)[0] = {address(input), wqe->length_bytes, key(input)};
    ring.advance();
    ring.publish();
    if (&ring == &receive_ring_of(&qp)) core_.ring_doorbell(&qp);
    advance(100);
  }

  void change_state(FuzzInput& input) {
    QueuePair& qp = pick(input);
    QpAttributes attributes;
    attributes.state = static_cast<QpState>(input.byte() % kQpStateCount);
    static_cast<void>(core_.modify_qp(&qp, attributes, kAttrState, now_ns_));
    if (state_of(&qp) == QpState::reset) connect(qp);
    advance(100);
  }

  void advance(uint64_t nanoseconds) {
    now_ns_ += nanoseconds;
    memory_.advance(now_ns_);
    core_.poll(now_ns_);
    drain();
  }

  void drain() {
    std::array<Completion, 16> some;
    while (cq_.poll(some) == some.size()) {
    }
  }

  const bool by_socket_;
  TimeNs now_ns_ = 1'000'000;
  sim::ScriptedMemory memory_;
  FuzzPort port_;
  CompletionQueue cq_{1024};
  sim::Region *open_, *paged_, *local_, *forbidden_;
  std::vector<uint8_t> canary_;
  sim::Window* window_;
  SharedReceiveQueue* srq_ = nullptr;
  std::vector<QueuePair*> qps_;
  Core core_;
};

}  // namespace
}  // namespace faultline::fuzz

extern "C" [[gnu::visibility("default")]] int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  faultline::fuzz::FuzzInput input(data, bytes);
  faultline::fuzz::Bed bed(bytes % 2 != 0);
  bed.run(input);
  return 0;
}
