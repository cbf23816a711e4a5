// SPDX-License-Identifier: BSD-3-Clause
// Which work requests a QP's type takes, and what each one needs: the one table that ibv_post_send, ibv_wr_*
// and create_qp_ex ask (ibv_post_send(3), ibv_wr_post(3); IBA 9.4, table 25).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>

namespace faultline::verbs {

// Of newer rdma-core than the header's (faultline.h has them for programs).
inline constexpr uint32_t kOpcodeFlush = 14;
inline constexpr uint64_t kSendOpsFlush = 1U << 11;

enum class Payload : uint8_t {
  none,   ///< elements are not looked at
  bytes,  ///< any number of bytes up to the longest message
  eight   ///< eight bytes
};

struct SendRule {
  uint64_t send_ops_flag = 0;  ///< of ibv_qp_create_send_ops_flags; 0: there is no such opcode
  Payload payload = Payload::none;
  bool may_be_inline = false;
  bool needs_rd_atomic = false;  ///< takes one of the peer's responder resources
  uint32_t on_types = 0;         ///< a bit for each ibv_qp_type
  [[nodiscard]] bool allowed_on(ibv_qp_type type) const {
    const auto number = static_cast<uint32_t>(type);
    return number < 32 && (on_types >> number & 1) != 0;
  }
};

/// By opcode.
inline constexpr size_t kSendRules = IBV_WR_ATOMIC_WRITE + 1;
extern const std::array<SendRule, kSendRules> kSendRuleTable;
inline constexpr SendRule kNoSendRule{};

/// The rule of an opcode (ibv_wr_opcode or kOpcodeFlush); one that no type allows where there is none.
[[nodiscard]] inline const SendRule& send_rule_of(uint32_t opcode) {
  return opcode < kSendRules ? kSendRuleTable[opcode] : kNoSendRule;
}

/// 0, or EOPNOTSUPP where the type cannot do all that the flags of create_qp_ex ask for.
[[nodiscard]] int check_send_ops(ibv_qp_type type, uint64_t send_ops_flags);

}  // namespace faultline::verbs
