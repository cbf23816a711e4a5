// SPDX-License-Identifier: BSD-3-Clause
// The work requests that each QP type allows, and their requirements. ibv_post_send, ibv_wr_* and
// create_qp_ex share this table (ibv_post_send(3), ibv_wr_post(3); IBA 9.4, table 25).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>

namespace faultline::verbs {

// Defined by newer versions of rdma-core than the header's; faultline.h defines them for programs.
inline constexpr uint32_t kOpcodeFlush = 14;
inline constexpr uint64_t kSendOpsFlush = 1U << 11;

enum class Payload : uint8_t {
  none,   ///< elements are ignored
  bytes,  ///< any number of bytes up to the maximum message size
  eight   ///< eight bytes
};

struct SendRule {
  uint64_t send_ops_flag = 0;  ///< from ibv_qp_create_send_ops_flags; 0: no such opcode
  Payload payload = Payload::none;
  bool may_be_inline = false;
  bool needs_rd_atomic = false;  ///< occupies one of the peer's responder resources
  uint32_t on_types = 0;         ///< a bit for each ibv_qp_type
  [[nodiscard]] bool allowed_on(ibv_qp_type type) const {
    const auto number = static_cast<uint32_t>(type);
    return number < 32 && (on_types >> number & 1) != 0;
  }
};

/// Indexed by opcode.
inline constexpr size_t kSendRules = IBV_WR_ATOMIC_WRITE + 1;
extern const std::array<SendRule, kSendRules> kSendRuleTable;
inline constexpr SendRule kNoSendRule{};

/// Returns the rule of an opcode (ibv_wr_opcode or kOpcodeFlush), or a rule that no type allows for an
/// unknown one.
[[nodiscard]] inline const SendRule& send_rule_of(uint32_t opcode) {
  return opcode < kSendRules ? kSendRuleTable[opcode] : kNoSendRule;
}

/// Returns 0, or EOPNOTSUPP if the type cannot perform all operations in the flags of create_qp_ex.
[[nodiscard]] int check_send_ops(ibv_qp_type type, uint64_t send_ops_flags);

}  // namespace faultline::verbs
