// SPDX-License-Identifier: BSD-3-Clause
// A verbs program with a bug to plant, for tests of `faultline explore`. It sends messages from one QP of a
// device to another, each a WRITE of a number and a SEND that announces it. After an error it flushes both
// QPs and connects them again. Without a bug it does that under any trouble that a real device makes. No bug
// shows without trouble.
//   planted BUG
//     none         no bug
//     receive      a receive that cannot be posted is forgotten: two such errors, and no SEND arrives any
//     more flush        a completion with IBV_WC_WR_FLUSH_ERR is not counted: the program awaits it for ever
//     event        an error event releases a connection that an error completion has released already
//     rkey         the WRITE after a new connection has the region's old rkey
//     wake-up      after an event whose poll finds nothing, the queue is not armed again: a late completion
//     has no event
// Exit status: 0 all messages arrived; 1 wrong data or no progress; 4 the device refused what the program
// needs; 5 no end in ten seconds. A broken rule of its own ends it with SIGABRT.
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <unistd.h>

#include "tests/hang_limit.hpp"

// An assertion is one of the ways in which a bug shows.
#undef NDEBUG
#include <cassert>

namespace {

enum class Bug : uint8_t { none, receive, flush, event, rkey, wake_up };

constexpr uint64_t kMessages = 20;
constexpr int kReceives = 2;
constexpr int kMostTries = 100;
constexpr int kMostConnections = 10;  ///< without a message that arrives
constexpr unsigned kPatience_s = 10;  ///< of a program with a bug, one of which is that it hangs
constexpr uint64_t kWriteId = 1;
constexpr uint64_t kSendId = 2;

enum Status : int { kWrong = 1, kRefused = 4, kHang = 5 };

[[noreturn]] void finish(Status status, const char* what) {
  std::fprintf(stderr, "planted: %s: %s\n", what, std::strerror(errno));
  std::exit(status);
}

extern "C" void on_alarm(int /*signal*/) {
  constexpr std::string_view kLine = "planted: hang\n";
  if (write(STDERR_FILENO, kLine.data(), kLine.size()) >= 0) _exit(kHang);
  _exit(kHang);
}

/// Repeats a call that returns 0 or an errno: an error may pass. Returns whether it succeeded.
template <typename Call>
bool repeat(const Call& call) {
  for (int i = 0; i < kMostTries; ++i) {
    const int error = call();
    if (error == 0) return true;
    errno = error;
  }
  return false;
}

/// Repeats a call that returns an object or nullptr.
template <typename Call>
auto make(const char* what, const Call& call) {
  auto* object = call();
  for (int i = 1; i < kMostTries && object == nullptr; ++i) object = call();
  if (object == nullptr) finish(kRefused, what);
  return object;
}

class Program {
 public:
  explicit Program(Bug bug) : bug_(bug) {}

  void run() {
    open();
    connect();
    int connections = 0;
    while (arrived_ < kMessages) {
      const uint64_t before = arrived_;
      send_next();
      await_sends();
      while (!is_broken_ && arrived_ == before) take_channel_event();
      take_device_events();
      if (arrived_ != before) connections = 0;
      if (!is_broken_) continue;
      if (++connections > kMostConnections) finish(kWrong, "no progress");
      disconnect();
      connect();
    }
    std::printf("%llu messages\n", static_cast<unsigned long long>(arrived_));
  }

 private:
  void open() {
    int count = 0;
    ibv_device** const list = make("ibv_get_device_list", [&] { return ibv_get_device_list(&count); });
    if (count == 0) finish(kRefused, "no device");
    context_ = make("ibv_open_device", [&] { return ibv_open_device(list[0]); });
    ibv_free_device_list(list);
    if (fcntl(context_->async_fd, F_SETFL, O_NONBLOCK) != 0) finish(kRefused, "async_fd");
    if (!repeat([&] { return ibv_query_gid(context_, 1, 0, &gid_); })) finish(kRefused, "ibv_query_gid");
    pd_ = make("ibv_alloc_pd", [&] { return ibv_alloc_pd(context_); });
    channel_ = make("ibv_create_comp_channel", [&] { return ibv_create_comp_channel(context_); });
    send_cq_ = make("ibv_create_cq", [&] { return ibv_create_cq(context_, 16, nullptr, nullptr, 0); });
    receive_cq_ = make("ibv_create_cq", [&] { return ibv_create_cq(context_, 16, nullptr, channel_, 0); });
    source_mr_ =
        make("ibv_reg_mr", [&] { return ibv_reg_mr(pd_, &source_, sizeof source_, IBV_ACCESS_LOCAL_WRITE); });
    sender_ = make_qp(send_cq_);
    receiver_ = make_qp(receive_cq_);
    arm();
  }

  ibv_qp* make_qp(ibv_cq* cq) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = cq;
    wanted.recv_cq = cq;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {4, 4, 1, 1, 0};
    return make("ibv_create_qp", [&] { return ibv_create_qp(pd_, &wanted); });
  }

  void modify(ibv_qp* qp, ibv_qp_attr attributes, int mask) {
    if (!repeat([&] { return ibv_modify_qp(qp, &attributes, mask | IBV_QP_STATE); }))
      finish(kRefused, "ibv_modify_qp");
  }

  void join(ibv_qp* qp, const ibv_qp* peer) {
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    modify(qp, init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    ibv_qp_attr ready{};
    ready.qp_state = IBV_QPS_RTR;
    ready.path_mtu = IBV_MTU_1024;
    ready.dest_qp_num = peer->qp_num;
    ready.max_dest_rd_atomic = 1;
    ready.min_rnr_timer = 1;
    ready.ah_attr.is_global = 1;
    ready.ah_attr.port_num = 1;
    ready.ah_attr.grh.dgid = gid_;
    ready.ah_attr.grh.hop_limit = 1;
    modify(qp, ready,
           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
               IBV_QP_MIN_RNR_TIMER);
    ibv_qp_attr sending{};
    sending.qp_state = IBV_QPS_RTS;
    sending.timeout = 14;  // 67 ms
    sending.retry_cnt = 7;
    sending.rnr_retry = 7;  // for ever
    sending.max_rd_atomic = 1;
    modify(qp, sending,
           IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  /// Both QPs are new or reset. The target is registered anew, as by a peer that was started again.
  void connect() {
    is_broken_ = false;
    users_ = 1;
    target_mr_ = make("ibv_reg_mr", [&] {
      return ibv_reg_mr(pd_, &target_, sizeof target_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    });
    if (bug_ != Bug::rkey || rkey_ == 0) rkey_ = target_mr_->rkey;
    join(sender_, receiver_);
    join(receiver_, sender_);
    while (receives_ < kReceives)
      if (!post_receive(false)) finish(kRefused, "ibv_post_recv");
  }

  /// Returns whether a receive was posted. With `is_last_try` an error that would pass is not awaited.
  bool post_receive(bool is_last_try) {
    ibv_recv_wr request{};
    ibv_recv_wr* bad = nullptr;
    const auto post = [&] { return ibv_post_recv(receiver_, &request, &bad); };
    const bool is_posted = is_last_try ? post() == 0 : repeat(post);
    if (is_posted) ++receives_;
    return is_posted;
  }

  void post(ibv_wr_opcode opcode, uint64_t id, ibv_sge* piece) {
    ibv_send_wr request{};
    request.wr_id = id;
    request.sg_list = piece;
    request.num_sge = piece != nullptr ? 1 : 0;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {reinterpret_cast<uintptr_t>(&target_), rkey_};
    ibv_send_wr* bad = nullptr;
    if (repeat([&] { return ibv_post_send(sender_, &request, &bad); }))
      ++sends_;
    else
      fail();
  }

  void send_next() {
    source_ = arrived_ + 1;
    ibv_sge piece{reinterpret_cast<uintptr_t>(&source_), sizeof source_, source_mr_->lkey};
    post(IBV_WR_RDMA_WRITE, kWriteId, &piece);
    if (!is_broken_) post(IBV_WR_SEND, kSendId, nullptr);
  }

  /// The first failure of a connection releases it.
  void fail() {
    if (!is_broken_) release();
    is_broken_ = true;
  }

  void release() {
    assert(users_ == 1 && "the connection was released twice");
    --users_;
  }

  void await_sends() {
    while (sends_ > 0) {
      ibv_wc completion{};
      if (ibv_poll_cq(send_cq_, 1, &completion) != 1) {
        sched_yield();
        continue;
      }
      if (completion.status != IBV_WC_SUCCESS) fail();
      if (bug_ == Bug::flush && completion.status == IBV_WC_WR_FLUSH_ERR) continue;
      --sends_;
    }
  }

  void arm() {
    if (!repeat([&] { return ibv_req_notify_cq(receive_cq_, 0); })) finish(kRefused, "ibv_req_notify_cq");
  }

  void take_channel_event() {
    ibv_cq* cq = nullptr;
    void* unused = nullptr;
    if (ibv_get_cq_event(channel_, &cq, &unused) != 0) return;
    ibv_ack_cq_events(cq, 1);
    ibv_wc completion{};
    if (bug_ == Bug::wake_up) {
      if (ibv_poll_cq(receive_cq_, 1, &completion) != 1) return;
      take_receive(completion);
    }
    // Then poll: a completion is found by that poll or has an event.
    arm();
    while (ibv_poll_cq(receive_cq_, 1, &completion) == 1) take_receive(completion);
  }

  void take_receive(const ibv_wc& completion) {
    --receives_;
    if (completion.status != IBV_WC_SUCCESS) return fail();
    // A message whose SEND failed at the sender alone is sent again.
    if (target_ != arrived_ + 1 && target_ != arrived_)
      finish(kWrong, "the WRITE before this SEND is not there");
    arrived_ = target_;
    post_receive(bug_ == Bug::receive);
  }

  void take_device_events() {
    ibv_async_event event{};
    while (ibv_get_async_event(context_, &event) == 0) {
      const ibv_event_type type = event.event_type;
      ibv_ack_async_event(&event);
      switch (type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
          if (bug_ == Bug::event) {
            release();
            is_broken_ = true;
          } else {
            fail();
          }
          break;
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_DEVICE_FATAL:
          finish(kRefused, "the device failed");
        default:
          break;
      }
    }
  }

  /// Flushes both QPs, takes all completions, and resets the QPs.
  void disconnect() {
    for (ibv_qp* const qp : {sender_, receiver_}) {
      ibv_qp_attr failed{};
      failed.qp_state = IBV_QPS_ERR;
      modify(qp, failed, 0);
    }
    await_sends();
    while (receives_ > 0) take_channel_event();
    take_device_events();
    for (ibv_qp* const qp : {sender_, receiver_}) {
      ibv_qp_attr reset{};
      reset.qp_state = IBV_QPS_RESET;
      modify(qp, reset, 0);
    }
    if (!repeat([&] { return ibv_dereg_mr(target_mr_); })) finish(kRefused, "ibv_dereg_mr");
  }

  Bug bug_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* send_cq_ = nullptr;
  ibv_cq* receive_cq_ = nullptr;
  ibv_mr* source_mr_ = nullptr;
  ibv_mr* target_mr_ = nullptr;
  ibv_qp* sender_ = nullptr;
  ibv_qp* receiver_ = nullptr;
  ibv_gid gid_{};
  uint64_t source_ = 0;
  uint64_t target_ = 0;   ///< the highest message whose WRITE has arrived
  uint64_t arrived_ = 0;  ///< the highest message whose SEND has arrived
  uint32_t rkey_ = 0;
  int sends_ = 0;     ///< under way
  int receives_ = 0;  ///< posted
  int users_ = 0;     ///< of the connection
  bool is_broken_ = false;
};

struct Name {
  std::string_view name;
  Bug bug;
};

constexpr std::array kNames{Name{"none", Bug::none},   Name{"receive", Bug::receive},
                            Name{"flush", Bug::flush}, Name{"event", Bug::event},
                            Name{"rkey", Bug::rkey},   Name{"wake-up", Bug::wake_up}};

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGALRM, on_alarm);
  for (const Name& one : kNames)
    if (argc == 2 && one.name == argv[1]) {
      alarm(one.bug == Bug::none ? faultline::test::hang_seconds() : kPatience_s);
      Program(one.bug).run();
      return 0;
    }
  std::fprintf(stderr, "usage: planted none|receive|flush|event|rkey|wake-up\n");
  return 2;
}
