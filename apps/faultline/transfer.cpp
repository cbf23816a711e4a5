// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/transfer.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include <spdlog/fmt/fmt.h>

namespace faultline::cli {
namespace {

// About a second: a loaded machine may not run the peer's turn for long.
constexpr uint8_t kTimeoutCode = 18;
constexpr uint8_t kRetries = 7;

/// Both ends; its destructor releases what was made.
class Loop {
 public:
  Loop(const VerbsCalls& verbs, ibv_context* context)
      : verbs_(verbs), context_(context), source_(kTransferBytes), target_(kTransferBytes) {
    for (size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<uint8_t>(i * 31 + 7);
  }
  ~Loop() {
    for (ibv_qp* const qp : qps_)
      if (qp != nullptr) verbs_.destroy_qp(qp);
    if (cq_ != nullptr) verbs_.destroy_cq(cq_);
    for (ibv_mr* const mr : {source_mr_, target_mr_})
      if (mr != nullptr) verbs_.dereg_mr(mr);
    if (pd_ != nullptr) verbs_.dealloc_pd(pd_);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  [[nodiscard]] TransferReport run() {
    TransferReport report;
    report.error = make(report.on_demand_error);
    for (size_t i = 0; report.error.empty() && i < qps_.size(); ++i)
      report.error = join(qps_[i], qps_[1 - i]->qp_num);
    if (report.error.empty()) report.error = write();
    report.is_complete = report.error.empty() && source_ == target_;
    if (report.error.empty() && !report.is_complete) report.error = "bytes of an RDMA WRITE are wrong";
    return report;
  }

 private:
  [[nodiscard]] static std::string failure(const char* call, int error = errno) {
    return fmt::format("{}: {}", call, std::strerror(error));
  }

  [[nodiscard]] std::string make(std::string& on_demand_error) {
    pd_ = verbs_.alloc_pd(context_);
    if (pd_ == nullptr) return failure("ibv_alloc_pd");
    source_mr_ = verbs_.reg_mr(pd_, source_.data(), source_.size(), IBV_ACCESS_LOCAL_WRITE);
    if (source_mr_ == nullptr) return failure("ibv_reg_mr");
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    target_mr_ = verbs_.reg_mr(pd_, target_.data(), target_.size(), access | IBV_ACCESS_ON_DEMAND);
    if (target_mr_ == nullptr) {
      on_demand_error = failure("ibv_reg_mr with IBV_ACCESS_ON_DEMAND");
      target_mr_ = verbs_.reg_mr(pd_, target_.data(), target_.size(), access);
    }
    if (target_mr_ == nullptr) return failure("ibv_reg_mr");
    cq_ = verbs_.create_cq(context_, 4, nullptr, nullptr, 0);
    if (cq_ == nullptr) return failure("ibv_create_cq");
    for (ibv_qp*& qp : qps_) {
      ibv_qp_init_attr attributes{};
      attributes.send_cq = attributes.recv_cq = cq_;
      attributes.qp_type = IBV_QPT_RC;
      attributes.cap = {
          .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
      qp = verbs_.create_qp(pd_, &attributes);
      if (qp == nullptr) return failure("ibv_create_qp");
    }
    return {};
  }

  [[nodiscard]] std::string join(ibv_qp* qp, uint32_t peer) {
    ibv_port_attr port{};
    ibv_gid gid{};
    if (const int error = verbs_.query_port(context_, 1, &port); error != 0)
      return failure("ibv_query_port", error);
    if (verbs_.query_gid(context_, 1, 0, &gid) != 0) return failure("ibv_query_gid");
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (const int error = verbs_.modify_qp(
            qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
        error != 0)
      return failure("ibv_modify_qp to INIT", error);
    attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = port.active_mtu;
    attributes.dest_qp_num = peer;
    attributes.max_dest_rd_atomic = 1;
    attributes.min_rnr_timer = 12;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.grh.dgid = gid;
    attributes.ah_attr.grh.hop_limit = 1;
    if (const int error =
            verbs_.modify_qp(qp, &attributes,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
        error != 0)
      return failure("ibv_modify_qp to RTR", error);
    attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = kTimeoutCode;
    attributes.retry_cnt = attributes.rnr_retry = kRetries;
    attributes.max_rd_atomic = 1;
    if (const int error = verbs_.modify_qp(qp, &attributes,
                                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                               IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
        error != 0)
      return failure("ibv_modify_qp to RTS", error);
    return {};
  }

  [[nodiscard]] std::string write() {
    ibv_sge piece{reinterpret_cast<uint64_t>(source_.data()), kTransferBytes, source_mr_->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(target_.data());
    request.wr.rdma.rkey = target_mr_->rkey;
    ibv_send_wr* bad = nullptr;
    if (const int error = ibv_post_send(qps_[0], &request, &bad); error != 0)
      return failure("ibv_post_send", error);
    ibv_wc completion{};
    int count = 0;
    // Ends in any case: the requester gives up after its retries.
    while (count == 0) count = ibv_poll_cq(cq_, 1, &completion);
    if (count < 0) return "ibv_poll_cq failed";
    if (completion.status != IBV_WC_SUCCESS)
      return fmt::format("an RDMA WRITE failed: {}", verbs_.status_text(completion.status));
    return {};
  }

  const VerbsCalls& verbs_;
  ibv_context* context_;
  std::vector<uint8_t> source_;
  std::vector<uint8_t> target_;
  ibv_pd* pd_ = nullptr;
  ibv_mr* source_mr_ = nullptr;
  ibv_mr* target_mr_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::array<ibv_qp*, 2> qps_{};
};

}  // namespace

TransferReport transfer(const VerbsCalls& verbs, ibv_context* context) {
  return Loop(verbs, context).run();
}

}  // namespace faultline::cli
