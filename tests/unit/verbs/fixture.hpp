// SPDX-License-Identifier: BSD-3-Clause
// Two devices with one QP each, and the common steps of the data-path tests.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include "stack/include/faultline/faultline.h"
#include "tests/hang_limit.hpp"
#include "tests/unit/verbs/memory_backend.hpp"

namespace faultline::verbs::test {

inline constexpr uint32_t kQkey = 0x1234;
inline constexpr int kAllRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// Page-aligned anonymous memory.
class Pages {
 public:
  explicit Pages(size_t bytes)
      : bytes_(bytes),
        data_(static_cast<uint8_t*>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  [[nodiscard]] uint8_t* data() const { return data_; }
  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  [[nodiscard]] size_t size() const { return bytes_; }
  void fill(uint8_t seed) const {
    for (size_t i = 0; i < bytes_; ++i) data_[i] = static_cast<uint8_t>(seed + i * 7 + (i >> 8));
  }

 private:
  const size_t bytes_;
  uint8_t* const data_;
};

inline ibv_context* open(const std::string& name) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i)
    if (name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  return context;
}

struct EndOptions {
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t depth = 64;
  uint32_t sges = 4;
  uint32_t inline_bytes = 128;
  int signal_all = 0;
  int cqe = 256;
  bool with_channel = false;  ///< its CQ has a completion channel
};

/// One device with one QP.
struct End {
  explicit End(const std::string& name, const EndOptions& options = {}) : context(open(name)) {
    pd = ibv_alloc_pd(context);
    if (options.with_channel) channel = ibv_create_comp_channel(context);
    cq = ibv_create_cq(context, options.cqe, this, channel, 0);
    make_qp(options);
  }
  ~End() {
    if (qp != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(qp), 0);
    }
    for (ibv_mr* mr : regions) EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    if (channel != nullptr) {
      EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    }
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void make_qp(const EndOptions& options) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = options.type;
    init.sq_sig_all = options.signal_all;
    init.cap = {options.depth, options.depth, options.sges, options.sges, options.inline_bytes};
    qp = ibv_create_qp(pd, &init);
  }
  ibv_mr* add_region(const Pages& pages, int access = kAllRights) {
    ibv_mr* const mr = ibv_reg_mr(pd, pages.data(), pages.size(), access);
    EXPECT_NE(mr, nullptr);
    regions.push_back(mr);
    return mr;
  }
  [[nodiscard]] ibv_gid gid() const {
    ibv_gid gid{};
    EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    return gid;
  }
  [[nodiscard]] int to_init() const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAllRights;
    attr.qkey = kQkey;
    const int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last);
  }
  static constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  static ibv_qp_attr rtr_attributes(const ibv_gid& gid, uint32_t qpn) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qpn;
    attr.rq_psn = 0xfffffe;  // wraps soon
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = gid;
    attr.ah_attr.grh.hop_limit = 1;
    return attr;
  }
  [[nodiscard]] int to_rtr(const ibv_gid& peer_gid, uint32_t peer_qpn) const {
    constexpr int kResponders = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    ibv_qp_attr attr = rtr_attributes(peer_gid, peer_qpn);
    switch (qp->qp_type) {
      case IBV_QPT_UD:
        return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
      case IBV_QPT_UC:
      case IBV_QPT_XRC_SEND:
        return ibv_modify_qp(qp, &attr, kRtrMask & ~kResponders);
      default:
        return ibv_modify_qp(qp, &attr, kRtrMask);
    }
  }
  [[nodiscard]] int to_rts(uint8_t timeout = 14) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 0xfffffe;
    attr.timeout = timeout;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    constexpr int kBase = IBV_QP_STATE | IBV_QP_SQ_PSN;
    constexpr int kReliable =
        kBase | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    switch (qp->qp_type) {
      case IBV_QPT_UD:
      case IBV_QPT_UC:
        return ibv_modify_qp(qp, &attr, kBase);
      case IBV_QPT_XRC_RECV:
        return ibv_modify_qp(qp, &attr, kBase | IBV_QP_TIMEOUT);
      default:
        return ibv_modify_qp(qp, &attr, kReliable);
    }
  }

  [[nodiscard]] int post_send(ibv_send_wr wr) const {
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(qp, &wr, &bad);
    EXPECT_EQ(bad, error == 0 ? nullptr : &wr);
    return error;
  }
  [[nodiscard]] int post_receive(uint64_t wr_id, std::vector<ibv_sge> sges) const {
    ibv_recv_wr wr{wr_id, nullptr, sges.data(), static_cast<int>(sges.size())};
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_recv(qp, &wr, &bad);
    EXPECT_EQ(bad, error == 0 ? nullptr : &wr);
    return error;
  }

  ibv_context* const context;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  std::vector<ibv_mr*> regions;
};

inline void connect(const End& a, const End& b, uint8_t timeout = 14) {
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(a.to_rtr(b.gid(), b.qp->qp_num), 0);
  ASSERT_EQ(b.to_rtr(a.gid(), a.qp->qp_num), 0);
  ASSERT_EQ(a.to_rts(timeout), 0);
  ASSERT_EQ(b.to_rts(timeout), 0);
}

/// Polls `end` until it has `count` completions, and drives `other` as well. Gives up after a generous time.
inline std::vector<ibv_wc> completions(const End& end, const End& other, size_t count) {
  std::vector<ibv_wc> result;
  const auto give_up = std::chrono::steady_clock::now() + faultline::test::hang_limit();
  while (result.size() < count && std::chrono::steady_clock::now() < give_up) {
    std::array<ibv_wc, 8> wc{};
    const int got =
        ibv_poll_cq(end.cq, static_cast<int>(std::min<size_t>(wc.size(), count - result.size())), wc.data());
    EXPECT_GE(got, 0);
    result.insert(result.end(), wc.begin(), wc.begin() + got);
    faultline_progress(other.context);
  }
  EXPECT_EQ(result.size(), count);
  result.resize(count);
  return result;
}

inline ibv_wc completion(const End& end, const End& other) {
  return completions(end, other, 1).front();
}

inline ibv_sge sge_of(const ibv_mr* mr, size_t offset, size_t bytes) {
  return {reinterpret_cast<uint64_t>(mr->addr) + offset, static_cast<uint32_t>(bytes), mr->lkey};
}

}  // namespace faultline::verbs::test
