// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/objects/send_rules.hpp"

#include <cerrno>

namespace faultline::verbs {

namespace {

constexpr uint32_t kUc = 1U << IBV_QPT_UC;
constexpr uint32_t kUd = 1U << IBV_QPT_UD;
// XRC_SEND allows the same opcodes as RC.
constexpr uint32_t kRc = 1U << IBV_QPT_RC | 1U << IBV_QPT_XRC_SEND;

}  // namespace

// UC has no SEND with invalidate: the wire has no opcode for it.
//                              payload, inline, rd_atomic, types
constinit const std::array<SendRule, kSendRules> kSendRuleTable{{
    {IBV_QP_EX_WITH_RDMA_WRITE, Payload::bytes, true, false, kRc | kUc},
    {IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, Payload::bytes, true, false, kRc | kUc},
    {IBV_QP_EX_WITH_SEND, Payload::bytes, true, false, kRc | kUc | kUd},
    {IBV_QP_EX_WITH_SEND_WITH_IMM, Payload::bytes, true, false, kRc | kUc | kUd},
    {IBV_QP_EX_WITH_RDMA_READ, Payload::bytes, false, true, kRc},
    {IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, Payload::eight, false, true, kRc},
    {IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, Payload::eight, false, true, kRc},
    {IBV_QP_EX_WITH_LOCAL_INV, Payload::none, false, false, kRc | kUc},
    {IBV_QP_EX_WITH_BIND_MW, Payload::none, false, false, kRc | kUc},
    {IBV_QP_EX_WITH_SEND_WITH_INV, Payload::bytes, true, false, kRc},
    {},  // TSO
    {},  // DRIVER1
    {},
    {},
    {kSendOpsFlush, Payload::none, false, true, kRc},
    {IBV_QP_EX_WITH_ATOMIC_WRITE, Payload::eight, true, true, kRc},
}};

int check_send_ops(ibv_qp_type type, uint64_t send_ops_flags) {
  uint64_t left = send_ops_flags;
  for (const SendRule& rule : kSendRuleTable)
    if (rule.allowed_on(type)) left &= ~rule.send_ops_flag;
  return left == 0 ? 0 : EOPNOTSUPP;
}

}  // namespace faultline::verbs
