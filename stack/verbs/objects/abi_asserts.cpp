// SPDX-License-Identifier: BSD-3-Clause
// The transport and odp include no verbs header. These assertions check that their enum values equal those of
// verbs, on which casts rely.
#include <infiniband/verbs.h>

#include "odp/regions/memory_access.hpp"
#include "stack/include/faultline/faultline.h"
#include "stack/transport/core/core.hpp"
#include "stack/verbs/objects/send_rules.hpp"

namespace faultline::verbs {

namespace {

template <typename Ours, typename Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<int64_t>(ours) == static_cast<int64_t>(theirs);
}

using transport::AsyncEvent;
using transport::CompletionOpcode;
using transport::CompletionStatus;
using transport::PathMtu;
using transport::QpState;
using transport::QpType;
using transport::SendOpcode;

static_assert(same(QpType::rc, IBV_QPT_RC) && same(QpType::uc, IBV_QPT_UC) && same(QpType::ud, IBV_QPT_UD) &&
              same(QpType::xrc_send, IBV_QPT_XRC_SEND) && same(QpType::xrc_recv, IBV_QPT_XRC_RECV));

static_assert(same(QpState::reset, IBV_QPS_RESET) && same(QpState::init, IBV_QPS_INIT) &&
              same(QpState::rtr, IBV_QPS_RTR) && same(QpState::rts, IBV_QPS_RTS) &&
              same(QpState::sqd, IBV_QPS_SQD) && same(QpState::sqe, IBV_QPS_SQE) &&
              same(QpState::err, IBV_QPS_ERR));

static_assert(same(PathMtu::mtu256, IBV_MTU_256) && same(PathMtu::mtu512, IBV_MTU_512) &&
              same(PathMtu::mtu1024, IBV_MTU_1024) && same(PathMtu::mtu2048, IBV_MTU_2048) &&
              same(PathMtu::mtu4096, IBV_MTU_4096));

static_assert(same(SendOpcode::rdma_write, IBV_WR_RDMA_WRITE) &&
              same(SendOpcode::rdma_write_with_imm, IBV_WR_RDMA_WRITE_WITH_IMM) &&
              same(SendOpcode::send, IBV_WR_SEND) && same(SendOpcode::send_with_imm, IBV_WR_SEND_WITH_IMM) &&
              same(SendOpcode::rdma_read, IBV_WR_RDMA_READ) &&
              same(SendOpcode::atomic_cmp_and_swp, IBV_WR_ATOMIC_CMP_AND_SWP) &&
              same(SendOpcode::atomic_fetch_and_add, IBV_WR_ATOMIC_FETCH_AND_ADD) &&
              same(SendOpcode::local_inv, IBV_WR_LOCAL_INV) && same(SendOpcode::bind_mw, IBV_WR_BIND_MW) &&
              same(SendOpcode::send_with_inv, IBV_WR_SEND_WITH_INV) &&
              same(SendOpcode::atomic_write, IBV_WR_ATOMIC_WRITE));

static_assert(same(transport::kFence, IBV_SEND_FENCE) && same(transport::kSignaled, IBV_SEND_SIGNALED) &&
              same(transport::kSolicited, IBV_SEND_SOLICITED) && same(transport::kInline, IBV_SEND_INLINE));

static_assert(same(CompletionStatus::success, IBV_WC_SUCCESS) &&
              same(CompletionStatus::local_length, IBV_WC_LOC_LEN_ERR) &&
              same(CompletionStatus::local_qp_operation, IBV_WC_LOC_QP_OP_ERR) &&
              same(CompletionStatus::local_eec_operation, IBV_WC_LOC_EEC_OP_ERR) &&
              same(CompletionStatus::local_protection, IBV_WC_LOC_PROT_ERR) &&
              same(CompletionStatus::work_request_flushed, IBV_WC_WR_FLUSH_ERR) &&
              same(CompletionStatus::mw_bind, IBV_WC_MW_BIND_ERR) &&
              same(CompletionStatus::bad_response, IBV_WC_BAD_RESP_ERR) &&
              same(CompletionStatus::local_access, IBV_WC_LOC_ACCESS_ERR) &&
              same(CompletionStatus::remote_invalid_request, IBV_WC_REM_INV_REQ_ERR) &&
              same(CompletionStatus::remote_access, IBV_WC_REM_ACCESS_ERR) &&
              same(CompletionStatus::remote_operation, IBV_WC_REM_OP_ERR) &&
              same(CompletionStatus::retry_exceeded, IBV_WC_RETRY_EXC_ERR) &&
              same(CompletionStatus::rnr_retry_exceeded, IBV_WC_RNR_RETRY_EXC_ERR) &&
              same(CompletionStatus::general, IBV_WC_GENERAL_ERR));

static_assert(same(CompletionOpcode::send, IBV_WC_SEND) &&
              same(CompletionOpcode::rdma_write, IBV_WC_RDMA_WRITE) &&
              same(CompletionOpcode::rdma_read, IBV_WC_RDMA_READ) &&
              same(CompletionOpcode::comp_swap, IBV_WC_COMP_SWAP) &&
              same(CompletionOpcode::fetch_add, IBV_WC_FETCH_ADD) &&
              same(CompletionOpcode::bind_mw, IBV_WC_BIND_MW) &&
              same(CompletionOpcode::local_inv, IBV_WC_LOCAL_INV) &&
              same(CompletionOpcode::atomic_write, IBV_WC_ATOMIC_WRITE) &&
              same(CompletionOpcode::recv, IBV_WC_RECV) &&
              same(CompletionOpcode::recv_rdma_with_imm, IBV_WC_RECV_RDMA_WITH_IMM));

static_assert(same(transport::kWithGrh, IBV_WC_GRH) && same(transport::kWithImm, IBV_WC_WITH_IMM) &&
              same(transport::kWithInvalidate, IBV_WC_WITH_INV));

static_assert(same(AsyncEvent::cq_error, IBV_EVENT_CQ_ERR) &&
              same(AsyncEvent::qp_fatal, IBV_EVENT_QP_FATAL) &&
              same(AsyncEvent::qp_request_error, IBV_EVENT_QP_REQ_ERR) &&
              same(AsyncEvent::qp_access_error, IBV_EVENT_QP_ACCESS_ERR) &&
              same(AsyncEvent::communication_established, IBV_EVENT_COMM_EST) &&
              same(AsyncEvent::sq_drained, IBV_EVENT_SQ_DRAINED) &&
              same(AsyncEvent::path_migrated, IBV_EVENT_PATH_MIG) &&
              same(AsyncEvent::path_migration_error, IBV_EVENT_PATH_MIG_ERR) &&
              same(AsyncEvent::device_fatal, IBV_EVENT_DEVICE_FATAL) &&
              same(AsyncEvent::port_active, IBV_EVENT_PORT_ACTIVE) &&
              same(AsyncEvent::port_error, IBV_EVENT_PORT_ERR) &&
              same(AsyncEvent::srq_error, IBV_EVENT_SRQ_ERR) &&
              same(AsyncEvent::srq_limit_reached, IBV_EVENT_SRQ_LIMIT_REACHED) &&
              same(AsyncEvent::last_wqe_reached, IBV_EVENT_QP_LAST_WQE_REACHED));

static_assert(
    same(transport::kAttrState, IBV_QP_STATE) && same(transport::kAttrCurState, IBV_QP_CUR_STATE) &&
    same(transport::kAttrEnSqdAsyncNotify, IBV_QP_EN_SQD_ASYNC_NOTIFY) &&
    same(transport::kAttrAccessFlags, IBV_QP_ACCESS_FLAGS) &&
    same(transport::kAttrPkeyIndex, IBV_QP_PKEY_INDEX) && same(transport::kAttrPort, IBV_QP_PORT) &&
    same(transport::kAttrQkey, IBV_QP_QKEY) && same(transport::kAttrAv, IBV_QP_AV) &&
    same(transport::kAttrPathMtu, IBV_QP_PATH_MTU) && same(transport::kAttrTimeout, IBV_QP_TIMEOUT) &&
    same(transport::kAttrRetryCnt, IBV_QP_RETRY_CNT) && same(transport::kAttrRnrRetry, IBV_QP_RNR_RETRY) &&
    same(transport::kAttrRqPsn, IBV_QP_RQ_PSN) &&
    same(transport::kAttrMaxQpRdAtomic, IBV_QP_MAX_QP_RD_ATOMIC) &&
    same(transport::kAttrAltPath, IBV_QP_ALT_PATH) &&
    same(transport::kAttrMinRnrTimer, IBV_QP_MIN_RNR_TIMER) && same(transport::kAttrSqPsn, IBV_QP_SQ_PSN) &&
    same(transport::kAttrMaxDestRdAtomic, IBV_QP_MAX_DEST_RD_ATOMIC) &&
    same(transport::kAttrPathMigState, IBV_QP_PATH_MIG_STATE) && same(transport::kAttrCap, IBV_QP_CAP) &&
    same(transport::kAttrDestQpn, IBV_QP_DEST_QPN) && same(transport::kAttrRateLimit, IBV_QP_RATE_LIMIT));

static_assert(same(odp::kFlushGlobal, FAULTLINE_ACCESS_FLUSH_GLOBAL) &&
              same(odp::kFlushPersistent, FAULTLINE_ACCESS_FLUSH_PERSISTENT) &&
              same(SendOpcode::flush, FAULTLINE_WR_FLUSH) &&
              same(CompletionOpcode::flush, FAULTLINE_WC_FLUSH) &&
              same(kSendOpsFlush, FAULTLINE_QP_EX_WITH_FLUSH) && same(kOpcodeFlush, FAULTLINE_WR_FLUSH));

static_assert(same(odp::WindowType::type1, IBV_MW_TYPE_1) && same(odp::WindowType::type2, IBV_MW_TYPE_2));

static_assert(same(odp::kLocalWrite, IBV_ACCESS_LOCAL_WRITE) &&
              same(odp::kRemoteWrite, IBV_ACCESS_REMOTE_WRITE) &&
              same(odp::kRemoteRead, IBV_ACCESS_REMOTE_READ) &&
              same(odp::kRemoteAtomic, IBV_ACCESS_REMOTE_ATOMIC) &&
              same(odp::kMemoryWindowBind, IBV_ACCESS_MW_BIND) &&
              same(odp::kZeroBased, IBV_ACCESS_ZERO_BASED) && same(odp::kOnDemand, IBV_ACCESS_ON_DEMAND) &&
              same(odp::kHugePages, IBV_ACCESS_HUGETLB) &&
              same(odp::kRelaxedOrdering, IBV_ACCESS_RELAXED_ORDERING));

}  // namespace

}  // namespace faultline::verbs
