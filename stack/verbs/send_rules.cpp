// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/send_rules.hpp"

#include <array>
#include <cerrno>

namespace faultline::verbs {

namespace {

// By opcode. XRC_SEND takes what RC takes. UC has no SEND with invalidate: the wire has no opcode for it.
//                              payload, inline, rd_atomic, RC, UC, UD
constexpr std::array<SendRule, 16> kRules{{
    {IBV_QP_EX_WITH_RDMA_WRITE, Payload::bytes, true, false, true, true, false},
    {IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, Payload::bytes, true, false, true, true, false},
    {IBV_QP_EX_WITH_SEND, Payload::bytes, true, false, true, true, true},
    {IBV_QP_EX_WITH_SEND_WITH_IMM, Payload::bytes, true, false, true, true, true},
    {IBV_QP_EX_WITH_RDMA_READ, Payload::bytes, false, true, true, false, false},
    {IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, Payload::eight, false, true, true, false, false},
    {IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, Payload::eight, false, true, true, false, false},
    {IBV_QP_EX_WITH_LOCAL_INV, Payload::none, false, false, true, true, false},
    {IBV_QP_EX_WITH_BIND_MW, Payload::none, false, false, true, true, false},
    {IBV_QP_EX_WITH_SEND_WITH_INV, Payload::bytes, true, false, true, false, false},
    {},  // TSO
    {},  // DRIVER1
    {},
    {},
    {kSendOpsFlush, Payload::none, false, true, true, false, false},
    {IBV_QP_EX_WITH_ATOMIC_WRITE, Payload::eight, true, true, true, false, false},
}};
static_assert(IBV_WR_ATOMIC_WRITE + 1 == kRules.size());
constexpr SendRule kNoRule{};

}  // namespace

bool SendRule::allowed_on(ibv_qp_type type) const {
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
      return on_rc;
    case IBV_QPT_UC:
      return on_uc;
    case IBV_QPT_UD:
      return on_ud;
    default:
      return false;
  }
}

const SendRule& send_rule_of(uint32_t opcode) {
  return opcode < kRules.size() ? kRules[opcode] : kNoRule;
}

int check_send_ops(ibv_qp_type type, uint64_t send_ops_flags) {
  uint64_t left = send_ops_flags;
  for (const SendRule& rule : kRules)
    if (rule.allowed_on(type)) left &= ~rule.send_ops_flag;
  return left == 0 ? 0 : EOPNOTSUPP;
}

}  // namespace faultline::verbs
