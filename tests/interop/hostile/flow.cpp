// SPDX-License-Identifier: BSD-3-Clause
#include "tests/interop/hostile/flow.hpp"

#include <chrono>

#include <sys/random.h>

#include "tests/hang_limit.hpp"

namespace faultline::hostile {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kReliableRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint32_t kCounterBytes = 64;
constexpr uint32_t kPsnMask = 0xffffff;

/// The next completion, which has to be one of success.
bool poll(const char* flow, End& end, ibv_wc& completion) {
  const int count = ibv_poll_cq(end.cq, 1, &completion);
  if (count < 0) wrong(flow, "ibv_poll_cq");
  if (count != 0 && completion.status != IBV_WC_SUCCESS) wrong(flow, ibv_wc_status_str(completion.status));
  return count != 0;
}

void modify(End& end, ibv_qp_attr& attributes, int mask) {
  errno = ibv_modify_qp(end.qp, &attributes, mask);
  if (errno != 0) wrong("modify", "ibv_modify_qp");
}

}  // namespace

void wrong(const char* flow, const char* what) {
  std::printf("WRONG %s: %s (errno %d)\n", flow, what, errno);
  std::fflush(stdout);
  std::_Exit(1);
}

uint64_t draw() {
  uint64_t bits = 0;
  while (getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
  }
  return bits;
}

void fill(std::vector<uint8_t>& bytes, uint64_t number) {
  uint64_t word = number * 0x9e3779b97f4a7c15 + 1;
  for (size_t at = 0; at + sizeof word <= bytes.size(); at += sizeof word) {
    word = word * 6364136223846793005 + 1442695040888963407;
    std::memcpy(&bytes[at], &word, sizeof word);
  }
}

Memory::Memory(Side& side, size_t length, int rights)
    : bytes(length), region(ibv_reg_mr(side.pd, bytes.data(), length, rights)) {
  if (region == nullptr) wrong("memory", "ibv_reg_mr");
}

Memory::~Memory() {
  ibv_dereg_mr(region);
}

End::End(Side& its_side, ibv_qp_type qp_type, uint32_t depth)
    : side(its_side), type(qp_type), psn(static_cast<uint32_t>(draw()) & kPsnMask) {
  cq = ibv_create_cq(side.context, static_cast<int>(4 * depth), nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = type;
  init.cap = {depth, depth, 1, 1, 0};
  qp = cq == nullptr ? nullptr : ibv_create_qp(side.pd, &init);
  if (qp == nullptr) wrong("end", "ibv_create_qp");
}

End::~End() {
  ibv_destroy_qp(qp);
  ibv_destroy_cq(cq);
}

void End::connect(const End& to) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kReliableRights;
  modify(*this, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_4096;
  attr.dest_qp_num = to.qp->qp_num;
  attr.rq_psn = to.psn;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = to.side.gid;
  attr.ah_attr.grh.hop_limit = 64;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  modify(*this, attr, mask);
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn;
  attr.timeout = e2e::kLossyTimeout;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (type == IBV_QPT_RC)
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  modify(*this, attr, mask);
}

void End::activate_datagrams(uint32_t qkey) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = qkey;
  modify(*this, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  attr.qp_state = IBV_QPS_RTR;
  modify(*this, attr, IBV_QP_STATE);
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn;
  modify(*this, attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

ibv_qp_state End::state() const {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  if (ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init) != 0) wrong("end", "ibv_query_qp");
  return attributes.qp_state;
}

// ---- reliable ----

// In the source: the block, the message, what was read back, the counter's old value. In the target: the
// block, the message, the counter.
ReliableFlow::ReliableFlow(const char* name, Side& from, Side& to)
    : requester(from, IBV_QPT_RC, 16),
      responder(to, IBV_QPT_RC, 16),
      source(from, 2 * kBlockBytes + 2 * kMessageBytes + kCounterBytes, kReliableRights),
      target(to, kBlockBytes + 2 * kMessageBytes + kCounterBytes, kReliableRights | IBV_ACCESS_ON_DEMAND),
      name_(name) {
  requester.connect(responder);
  responder.connect(requester);
}

void ReliableFlow::round() {
  const uint64_t number = rounds_++;
  post(number);
  ibv_wc completion;
  const auto end = Clock::now() + test::hang_limit();
  for (unsigned sends = 0, receives = 0; sends < 4 || receives < 1;) {
    if (poll(name_, requester, completion)) ++sends;
    if (poll(name_, responder, completion)) {
      if (completion.opcode != IBV_WC_RECV || completion.byte_len != kMessageBytes)
        wrong(name_, "not the message that was sent");
      ++receives;
    }
    if (Clock::now() > end) wrong(name_, "nothing comes any more");
  }
  check(number);
}

void ReliableFlow::post(uint64_t number) {
  std::vector<uint8_t> pattern(kBlockBytes);
  fill(pattern, number);
  std::memcpy(source.bytes.data(), pattern.data(), kBlockBytes);
  pattern.resize(kMessageBytes);
  fill(pattern, ~number);
  std::memcpy(&source.bytes[2 * kBlockBytes], pattern.data(), kMessageBytes);

  const size_t counter_at = kBlockBytes + 2 * kMessageBytes;
  ibv_sge into = target.piece(kBlockBytes, kMessageBytes);
  ibv_recv_wr receive{};
  receive.sg_list = &into;
  receive.num_sge = 1;
  ibv_recv_wr* bad_receive = nullptr;
  if (ibv_post_recv(responder.qp, &receive, &bad_receive) != 0) wrong(name_, "ibv_post_recv");

  std::array<ibv_sge, 4> pieces{source.piece(0, kBlockBytes), source.piece(2 * kBlockBytes, kMessageBytes),
                                source.piece(2 * kBlockBytes + 2 * kMessageBytes, sizeof(uint64_t)),
                                source.piece(kBlockBytes, kBlockBytes)};
  const auto remote = reinterpret_cast<uint64_t>(target.bytes.data());
  std::array<ibv_send_wr, 4> requests{};
  constexpr std::array kOpcodes{IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_ATOMIC_FETCH_AND_ADD,
                                IBV_WR_RDMA_READ};
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].opcode = kOpcodes[i];
    requests[i].send_flags = IBV_SEND_SIGNALED;
    requests[i].sg_list = &pieces[i];
    requests[i].num_sge = 1;
    requests[i].next = i + 1 < requests.size() ? &requests[i + 1] : nullptr;
    requests[i].wr.rdma = {remote, target.region->rkey};
  }
  // What is added to starts on eight bytes.
  requests[2].wr.atomic = {(remote + counter_at + 7) & ~uint64_t{7}, 1, 0, target.region->rkey};
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(requester.qp, requests.data(), &bad) != 0) wrong(name_, "ibv_post_send");
}

void ReliableFlow::check(uint64_t number) {
  if (std::memcmp(source.bytes.data(), target.bytes.data(), kBlockBytes) != 0)
    wrong(name_, "a byte of a WRITE");
  if (std::memcmp(&source.bytes[2 * kBlockBytes], &target.bytes[kBlockBytes], kMessageBytes) != 0)
    wrong(name_, "a byte of a SEND");
  if (std::memcmp(source.bytes.data(), &source.bytes[kBlockBytes], kBlockBytes) != 0)
    wrong(name_, "a byte of a READ");
  uint64_t before = 0;
  std::memcpy(&before, &source.bytes[2 * kBlockBytes + 2 * kMessageBytes], sizeof before);
  if (before != number) wrong(name_, "an addition was done not once");
}

// ---- unreliable ----

UnreliableFlow::UnreliableFlow(const char* name, Side& from, Side& to, ibv_qp_type type)
    : sender(from, type, kDepth),
      receiver(to, type, kDepth),
      name_(name),
      qkey_(static_cast<uint32_t>(draw()) & 0x7fffffff),
      message_bytes_(type == IBV_QPT_UD ? 2000 : 6000),
      source_(from, message_bytes_, IBV_ACCESS_LOCAL_WRITE),
      target_(to, size_t{kDepth} * (message_bytes_ + kGrhBytes), IBV_ACCESS_LOCAL_WRITE) {
  if (type == IBV_QPT_UD) {
    sender.activate_datagrams(qkey_);
    receiver.activate_datagrams(qkey_);
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.dgid = to.gid;
    attributes.grh.hop_limit = 64;
    ah_ = ibv_create_ah(from.pd, &attributes);
    if (ah_ == nullptr) wrong(name, "ibv_create_ah");
  } else {
    sender.connect(receiver);
    receiver.connect(sender);
  }
  for (uint64_t slot = 0; slot < kDepth; ++slot) post_receive(slot);
}

UnreliableFlow::~UnreliableFlow() {
  if (ah_ != nullptr) ibv_destroy_ah(ah_);
}

void UnreliableFlow::post_receive(uint64_t slot) {
  ibv_sge piece = target_.piece(slot * (message_bytes_ + kGrhBytes), message_bytes_ + kGrhBytes);
  ibv_recv_wr receive{.wr_id = slot, .next = nullptr, .sg_list = &piece, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_recv(receiver.qp, &receive, &bad) != 0) wrong(name_, "ibv_post_recv");
}

void UnreliableFlow::round() {
  take_received();
  ibv_wc completion;
  if (poll(name_, sender, completion)) under_way_ = false;
  if (under_way_) return;
  fill(source_.bytes, sent);
  std::memcpy(source_.bytes.data(), &sent, sizeof sent);
  ibv_sge piece = source_.piece(0, message_bytes_);
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  if (ah_ != nullptr) request.wr.ud = {ah_, receiver.qp->qp_num, qkey_};
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(sender.qp, &request, &bad) != 0) wrong(name_, "ibv_post_send");
  under_way_ = true;
  ++sent;
}

void UnreliableFlow::take_received() {
  ibv_wc completion;
  std::vector<uint8_t> expected(message_bytes_);
  while (poll(name_, receiver, completion)) {
    const uint8_t* message = &target_.bytes[completion.wr_id * (message_bytes_ + kGrhBytes) + offset()];
    if (completion.byte_len != message_bytes_ + offset()) wrong(name_, "the length of a message");
    uint64_t number = 0;
    std::memcpy(&number, message, sizeof number);
    if (number >= sent) wrong(name_, "a message that nobody sent");
    fill(expected, number);
    std::memcpy(expected.data(), &number, sizeof number);
    if (std::memcmp(expected.data(), message, message_bytes_) != 0) wrong(name_, "a byte of a message");
    ++received;
    post_receive(completion.wr_id);
  }
}

}  // namespace faultline::hostile
