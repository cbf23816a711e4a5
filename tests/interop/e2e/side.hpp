// SPDX-License-Identifier: BSD-3-Clause
// One side of a connection for the end-to-end tests written against verbs.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <faultline/faultline.h>
#include <infiniband/verbs.h>

#include "tests/hang_limit.hpp"

namespace faultline::e2e {

[[noreturn]] inline void fail(const char* who, const char* what) {
  std::fprintf(stderr, "%s: %s (errno %d)\n", who, what, errno);
  std::_Exit(1);
}

/// 17 s: a busy machine may leave a process alone for longer than the 67 ms that programs like to set, which
/// says nothing of the peer. A test without a dead peer takes this one. A lost packet still comes to light.
constexpr uint8_t kPatientTimeout = 22;
constexpr uint8_t kShortRnrTimer = 1;  ///< 0.01 ms (IBA table 45)
/// 0.27 s, and 2 s with all retries: for a peer that dies, or a link that loses packets.
constexpr uint8_t kLossyTimeout = 16;

/// Until the condition holds, which drives what it waits for, or sleeps. Fails after hang_limit().
template <typename Condition>
void await_true(const char* who, const char* what, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + test::hang_limit();
  while (!condition())
    if (std::chrono::steady_clock::now() > end) fail(who, what);
}

struct Address {
  uint32_t qpn = 0;
  uint32_t rkey = 0;
  uint64_t va = 0;
  ibv_gid gid{};
  bool over = false;
};

/// One side's device and QP, made anew for every life of the connection.
class Side {
 public:
  /// `config` empty: the process is configured already. `number`: of the device in the list.
  Side(const char* who, const std::string& config, int number = 0) : who_(who) {
    if (!config.empty() && faultline_configure(config.c_str()) != 0) fail(who, faultline_last_error());
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    if (list == nullptr || count <= number) fail(who, faultline_last_error());
    context = ibv_open_device(list[number]);
    ibv_free_device_list(list);
    if (context == nullptr) fail(who, faultline_last_error());
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 1024, nullptr, nullptr, 0);
    if (pd == nullptr || cq == nullptr || ibv_query_gid(context, 1, 0, &gid) != 0) fail(who, "set-up");
  }

  void make_qp(uint32_t depth) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {depth, 16, 1, 1, 0};
    qp = ibv_create_qp(pd, &init);
    if (qp == nullptr) fail(who_, "ibv_create_qp");
  }

  void connect(const Address& to, uint8_t timeout = kPatientTimeout, uint8_t rnr_timer = kShortRnrTimer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    int error =
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = to.qpn;
    attr.rq_psn = 0x100;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = rnr_timer;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = to.gid;
    attr.ah_attr.grh.hop_limit = 64;
    if (error == 0)
      error = ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 0x100;
    attr.timeout = timeout;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    if (error == 0)
      error = ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    if (error != 0) {
      errno = error;
      fail(who_, "ibv_modify_qp");
    }
  }

  /// A UD QP that is ready to send.
  void make_ud_qp(uint32_t depth, uint32_t qkey) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_UD;
    init.cap = {depth, depth, 1, 1, 0};
    qp = ibv_create_qp(pd, &init);
    if (qp == nullptr) fail(who_, "ibv_create_qp");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = qkey;
    int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    attr.qp_state = IBV_QPS_RTR;
    if (error == 0) error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
    attr.qp_state = IBV_QPS_RTS;
    if (error == 0) error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
    if (error != 0) {
      errno = error;
      fail(who_, "ibv_modify_qp");
    }
  }

  [[nodiscard]] ibv_ah* make_ah(const ibv_gid& to) const {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = to;
    attr.grh.hop_limit = 64;
    ibv_ah* const ah = ibv_create_ah(pd, &attr);
    if (ah == nullptr) fail(who_, "ibv_create_ah");
    return ah;
  }

  /// Posts a signaled SEND on a UD QP.
  void post_datagram(ibv_sge piece, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) const {
    ibv_send_wr request{}, *bad = nullptr;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.ud.ah = ah;
    request.wr.ud.remote_qpn = remote_qpn;
    request.wr.ud.remote_qkey = remote_qkey;
    if (ibv_post_send(qp, &request, &bad) != 0) fail(who_, "ibv_post_send");
  }

  void destroy_qp() {
    if (ibv_destroy_qp(qp) != 0) fail(who_, "ibv_destroy_qp");
    std::array<ibv_wc, 16> stale;
    while (ibv_poll_cq(cq, stale.size(), stale.data()) > 0) {
    }
  }

  [[nodiscard]] uint64_t counter(const char* name) const {
    std::array<faultline_counter, 1024> counters;
    const int count = std::min(faultline_query_counters(context, counters.data(), counters.size()), 1024);
    for (int i = 0; i < count; ++i)
      if (std::strcmp(counters[static_cast<size_t>(i)].name, name) == 0)
        return counters[static_cast<size_t>(i)].value;
    fail(who_, name);
  }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_gid gid{};

 private:
  const char* who_;
};

}  // namespace faultline::e2e
