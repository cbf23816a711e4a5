// SPDX-License-Identifier: BSD-3-Clause
#include "member.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <unistd.h>

namespace faultline::crowd {
namespace {

constexpr uint32_t kSmallBytes = 64;
constexpr uint32_t kLargeBytes = 16 * 1024;
constexpr uint32_t kMostSteps = 8;  ///< in progress at a time
constexpr uint32_t kReceives = 2;   ///< of a QP: one SEND, one WRITE with immediate
constexpr uint32_t kSends = 4;      ///< of a QP
/// 1.07 s. A busy machine may leave a process without a CPU for longer than the 67 ms of many programs.
constexpr uint8_t kAckTimeout = 18;
constexpr int kPollsBeforeSleep = 50;

/// A SEND: the receiver of this message may write to that landing buffer.
struct Grant {
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t step = 0;
};

enum class Kind : uint64_t { grant, data };

uint64_t mix(uint64_t value) {
  value += 0x9e37'79b9'7f4a'7c15;
  value = (value ^ (value >> 30)) * 0xbf58'476d'1ce4'e5b9;
  value = (value ^ (value >> 27)) * 0x94d0'49bb'1331'11eb;
  return value ^ (value >> 31);
}

/// The content of one message, in words.
class Content {
 public:
  Content(Kind kind, uint32_t sender, uint32_t receiver, uint32_t lap)
      : key_(mix(mix((uint64_t{sender} << 32) | receiver) ^
                 ((uint64_t{lap} << 1) | static_cast<uint64_t>(kind)))) {}

  void fill(std::span<std::byte> bytes) const {
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      const uint64_t word = mix(key_ + at);
      std::memcpy(&bytes[at], &word, sizeof word);
    }
  }
  [[nodiscard]] bool equals(std::span<const std::byte> bytes) const {
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      const uint64_t word = mix(key_ + at);
      if (std::memcmp(&bytes[at], &word, sizeof word) != 0) return false;
    }
    return true;
  }

 private:
  uint64_t key_;
};

/// faultline_counter of faultline/faultline.h, which this program does not need.
struct Counter {
  const char* name;
  uint64_t value;
};

/// Local ACK timeouts of the device; 0 on another library.
uint64_t timeouts_of(ibv_context* context) {
  using Query = int (*)(ibv_context*, Counter*, size_t);
  const auto query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "faultline_query_counters"));
  std::array<Counter, 1024> counters{};
  if (query == nullptr) return 0;
  if (query(context, counters.data(), counters.size()) < 0) fail("faultline_query_counters");
  for (const Counter& one : counters)
    if (one.name != nullptr && std::string_view(one.name) == "transport.timeouts") return one.value;
  errno = ENOENT;
  fail("the counter transport.timeouts");
}

class Member {
 public:
  Member(Board& board, uint32_t self, uint32_t processes)
      : board_(board),
        self_(self),
        processes_(processes),
        // So that a peer has at most one grant under way to this process.
        slots_(std::min(kMostSteps, processes - 1)),
        steps_(board.laps() * (processes - 1)),
        grants_(steps_),
        parts_left_(steps_, kPartsOfStep) {
    open();
    for (uint32_t peer = 0; peer < processes; ++peer) qps_.push_back(peer == self ? nullptr : make_qp(peer));
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  ~Member() {
    for (ibv_qp* qp : qps_)
      if (qp != nullptr) ibv_destroy_qp(qp);
    ibv_ack_cq_events(cq_, events_);
    ibv_destroy_cq(cq_);
    ibv_destroy_comp_channel(channel_);
    ibv_dereg_mr(mr_);
    ibv_dealloc_pd(pd_);
    ibv_close_device(context_);
  }

  void connect_all() {
    for (uint32_t peer = 0; peer < processes_; ++peer)
      if (peer != self_) connect(peer);
  }

  /// In step s, process p receives the data of p - r and sends its own to p + r, with r from 1 to N - 1.
  /// So each pair of processes has its step, in the same order in every process.
  void exchange() {
    int empty = 0;
    while (first_ < steps_) {
      for (; opened_ < std::min(steps_, first_ + slots_); ++opened_) open_step(opened_);
      if (handle_completions()) {
        empty = 0;
      } else if (++empty >= kPollsBeforeSleep) {
        empty = 0;
        sleep_for_completion();
      }
    }
  }

  [[nodiscard]] uint64_t messages() const { return messages_; }
  [[nodiscard]] uint64_t timeouts() const { return timeouts_of(context_); }

 private:
  /// Grant sent, grant received, data sent, data received.
  static constexpr uint8_t kPartsOfStep = 4;

  void open() {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    if (list != nullptr && count == 0) errno = ENODEV;
    if (list == nullptr || count == 0) fail("ibv_get_device_list");
    context_ = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (context_ == nullptr) fail("ibv_open_device");
    ibv_port_attr port{};
    if (ibv_query_port(context_, 1, &port) != 0 || ibv_query_gid(context_, 1, 0, &board_.gid(self_)) != 0)
      fail("ibv_query_gid");
    mtu_ = port.active_mtu;
    // Receives of each peer, and for each step in progress a grant, data to send and data that arrives.
    memory_.resize(size_t{processes_} * kReceives * kSmallBytes +
                   size_t{slots_} * (kSmallBytes + 2 * kLargeBytes));
    pd_ = ibv_alloc_pd(context_);
    if (pd_ == nullptr) fail("ibv_alloc_pd");
    mr_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (mr_ == nullptr) fail("ibv_reg_mr");
    channel_ = ibv_create_comp_channel(context_);
    if (channel_ == nullptr) fail("ibv_create_comp_channel");
    const uint32_t most = processes_ * kReceives + 2 * slots_;
    cq_ = ibv_create_cq(context_, static_cast<int>(most), nullptr, channel_, 0);
    if (cq_ == nullptr) fail("ibv_create_cq");
  }

  std::span<std::byte> receive_buffer(uint32_t peer, uint32_t which) {
    return std::span(memory_).subspan((size_t{peer} * kReceives + which) * kSmallBytes, kSmallBytes);
  }
  std::span<std::byte> grant_buffer(uint32_t step) {
    const size_t at = size_t{processes_} * kReceives * kSmallBytes + size_t{step % slots_} * kSmallBytes;
    return std::span(memory_).subspan(at, kSmallBytes);
  }
  std::span<std::byte> outgoing(uint32_t step) { return large_buffer(step % slots_); }
  std::span<std::byte> landing(uint32_t step) { return large_buffer(slots_ + step % slots_); }
  std::span<std::byte> large_buffer(uint32_t which) {
    const size_t at = (size_t{processes_} * kReceives + slots_) * kSmallBytes + size_t{which} * kLargeBytes;
    return std::span(memory_).subspan(at, kLargeBytes);
  }

  [[nodiscard]] uint32_t distance(uint32_t step) const { return 1 + step % (processes_ - 1); }
  [[nodiscard]] uint32_t lap(uint32_t step) const { return step / (processes_ - 1); }
  [[nodiscard]] uint32_t sender(uint32_t step) const {
    return (self_ + processes_ - distance(step)) % processes_;
  }
  [[nodiscard]] uint32_t receiver(uint32_t step) const { return (self_ + distance(step)) % processes_; }

  ibv_qp* make_qp(uint32_t peer) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = 1;
    init.cap = {kSends, kReceives, 1, 1, 0};
    ibv_qp* const qp = ibv_create_qp(pd_, &init);
    if (qp == nullptr) fail("ibv_create_qp");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    modify(qp, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    board_.qpn(self_, peer) = qp->qp_num;
    for (uint32_t which = 0; which < kReceives; ++which) post_receive(qp, peer, which);
    return qp;
  }

  void connect(uint32_t peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = mtu_;
    attr.dest_qp_num = board_.qpn(peer, self_);
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = board_.gid(peer);
    attr.ah_attr.grh.hop_limit = 64;
    // A peer without a CPU answers no ARP for long. Each attempt takes the time of several requests, and the
    // crowd ends what has no end.
    constexpr int kMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    while ((errno = ibv_modify_qp(qps_[peer], &attr, kMask)) == EHOSTUNREACH) {
    }
    if (errno != 0) fail("ibv_modify_qp");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = kAckTimeout;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    modify(qps_[peer], attr,
           IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_MAX_QP_RD_ATOMIC);
  }

  static void modify(ibv_qp* qp, ibv_qp_attr& attr, int mask) {
    errno = ibv_modify_qp(qp, &attr, mask);
    if (errno != 0) fail("ibv_modify_qp");
  }

  [[nodiscard]] ibv_sge piece(std::span<std::byte> bytes) const {
    return {reinterpret_cast<uintptr_t>(bytes.data()), static_cast<uint32_t>(bytes.size()), mr_->lkey};
  }

  void post_receive(ibv_qp* qp, uint32_t peer, uint32_t which) {
    ibv_sge sge = piece(receive_buffer(peer, which));
    ibv_recv_wr wr{};
    wr.wr_id = uint64_t{peer} * kReceives + which;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    errno = ibv_post_recv(qp, &wr, &bad);
    if (errno != 0) fail("ibv_post_recv");
  }

  void post_send(uint32_t peer, ibv_send_wr& wr, std::span<std::byte> bytes, uint32_t step) {
    ibv_sge sge = piece(bytes);
    wr.wr_id = step;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    errno = ibv_post_send(qps_[peer], &wr, &bad);
    if (errno != 0) fail("ibv_post_send");
  }

  void open_step(uint32_t step) {
    const std::span<std::byte> buffer = grant_buffer(step);
    const Grant grant{reinterpret_cast<uintptr_t>(landing(step).data()), mr_->rkey, step};
    std::memcpy(buffer.data(), &grant, sizeof grant);
    Content(Kind::grant, self_, sender(step), lap(step)).fill(buffer.subspan(sizeof grant));
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    post_send(sender(step), wr, buffer, step);
    // The grant of a peer that is ahead.
    if (grants_[step]) send_data(step);
  }

  void send_data(uint32_t step) {
    Content(Kind::data, self_, receiver(step), lap(step)).fill(outgoing(step));
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = htonl(step);
    wr.wr.rdma.remote_addr = grants_[step]->address;
    wr.wr.rdma.rkey = grants_[step]->rkey;
    post_send(receiver(step), wr, outgoing(step), step);
  }

  void take_grant(uint32_t peer, std::span<const std::byte> bytes) {
    Grant grant;
    std::memcpy(&grant, bytes.data(), sizeof grant);
    const uint32_t step = grant.step;
    if (step >= steps_ || receiver(step) != peer || grants_[step])
      refuse(peer, step, "has a SEND of another step");
    if (!Content(Kind::grant, peer, self_, lap(step)).equals(bytes.subspan(sizeof grant)))
      refuse(peer, step, "has wrong bytes in a SEND");
    grants_[step] = grant;
    if (step < opened_) send_data(step);
    finish_part(step);
  }

  void take_data(uint32_t peer, uint32_t step) {
    if (step < first_ || step >= opened_ || sender(step) != peer)
      refuse(peer, step, "has a WRITE of another step");
    if (!Content(Kind::data, peer, self_, lap(step)).equals(landing(step)))
      refuse(peer, step, "has wrong bytes in a WRITE");
    finish_part(step);
  }

  [[noreturn]] void refuse(uint32_t peer, uint32_t step, const char* why) const {
    std::fprintf(stderr, "crowd: process %u: the message of process %u in step %u %s\n", self_, peer, step,
                 why);
    std::exit(1);
  }

  void finish_part(uint32_t step) {
    --parts_left_[step];
    while (first_ < opened_ && parts_left_[first_] == 0) ++first_;
  }

  bool handle_completions() {
    std::array<ibv_wc, 16> completions;
    const int count = ibv_poll_cq(cq_, static_cast<int>(completions.size()), completions.data());
    if (count < 0) fail("ibv_poll_cq");
    for (const ibv_wc& wc : std::span(completions).first(static_cast<size_t>(count))) handle(wc);
    return count > 0;
  }

  void handle(const ibv_wc& wc) {
    if (wc.status != IBV_WC_SUCCESS) {
      std::fprintf(stderr, "crowd: process %u: a completion has status %d (%s)\n", self_, wc.status,
                   ibv_wc_status_str(wc.status));
      std::exit(1);
    }
    if ((wc.opcode & IBV_WC_RECV) == 0) {
      finish_part(static_cast<uint32_t>(wc.wr_id));
      return;
    }
    const auto peer = static_cast<uint32_t>(wc.wr_id / kReceives);
    const auto which = static_cast<uint32_t>(wc.wr_id % kReceives);
    const bool data = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    if (wc.byte_len != (data ? kLargeBytes : kSmallBytes)) refuse(peer, wc.byte_len, "has another length");
    std::array<std::byte, kSmallBytes> copy;
    std::ranges::copy(receive_buffer(peer, which), copy.begin());
    // First: what this process sends next permits the peer to send again.
    post_receive(qps_[peer], peer, which);
    ++messages_;
    if (data)
      take_data(peer, ntohl(wc.imm_data));
    else
      take_grant(peer, copy);
  }

  void sleep_for_completion() {
    if (ibv_req_notify_cq(cq_, 0) != 0) fail("ibv_req_notify_cq");
    if (handle_completions()) return;
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel_, &cq, &context) != 0) fail("ibv_get_cq_event");
    ++events_;
  }

  Board& board_;
  uint32_t self_;
  uint32_t processes_;
  uint32_t slots_;
  uint32_t steps_;
  uint32_t first_ = 0;                        ///< the first step that is not finished
  uint32_t opened_ = 0;                       ///< steps
  std::vector<std::optional<Grant>> grants_;  ///< received ones, by step
  std::vector<uint8_t> parts_left_;
  std::vector<std::byte> memory_;
  std::vector<ibv_qp*> qps_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mtu mtu_ = IBV_MTU_1024;
  uint64_t messages_ = 0;
  unsigned events_ = 0;
};

}  // namespace

void take_part(Board& board, uint32_t self, uint32_t processes, int done) {
  Member member(board, self, processes);
  board.wait(Phase::created);
  member.connect_all();
  // Packets to a QP that is not ready would be lost.
  board.wait(Phase::connected);
  Report& report = board.report(self);
  report.connected = Clock::now();
  member.exchange();
  report.end = Clock::now();
  report.messages = member.messages();
  report.timeouts = member.timeouts();
  if (write(done, "d", 1) != 1) fail("the pipe to the first process");
  board.wait(Phase::leave);
}

}  // namespace faultline::crowd
