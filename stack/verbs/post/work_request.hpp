// SPDX-License-Identifier: BSD-3-Clause
// Reads work requests for posting. A work request lies in memory that other threads of the program can change
// during the call. Every field is loaded once, the loaded value is checked, and the checked value enters the
// QP's ring (CVE-2026-74378).
#pragma once

#include <cerrno>
#include <cstdint>
#include <type_traits>

#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/objects/send_rules.hpp"

namespace faultline::verbs {

/// Loads a value exactly once: the compiler can neither repeat nor split the load. Returns an enumeration as
/// its number, because the program may have stored a number that is no value of the type.
template <typename T>
auto load_once(const T& from) {
  if constexpr (std::is_enum_v<T>) {
    using Number = std::underlying_type_t<T>;
    Number value;
    static_assert(sizeof value == sizeof from);
    __atomic_load(reinterpret_cast<const Number*>(&from), &value, __ATOMIC_RELAXED);
    return value;
  } else {
    T value;
    __atomic_load(&from, &value, __ATOMIC_RELAXED);
    return value;
  }
}

inline constexpr uint32_t kKnownSendFlags =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

/// Copies the elements and stores their total in `total_bytes`. Returns 0 or EINVAL.
[[nodiscard]] inline int copy_elements(const ibv_sge* list, uint32_t count, transport::Sge* to,
                                       uint64_t& total_bytes) {
  if (list == nullptr && count != 0) return EINVAL;
  total_bytes = 0;
  for (uint32_t i = 0; i < count; ++i) {
    to[i].va = load_once(list[i].addr);
    to[i].lkey = load_once(list[i].lkey);
    const uint32_t element_bytes = load_once(list[i].length);
    to[i].length_bytes = element_bytes;
    total_bytes += element_bytes;
  }
  return 0;
}

/// Copies the elements of a message to transmit. Returns 0, or EINVAL also if they exceed the maximum message
/// size.
[[nodiscard]] inline int copy_sges(const ibv_sge* list, uint32_t count, transport::Sge* to,
                                   uint32_t& length_bytes) {
  uint64_t total_bytes = 0;
  if (const int error = copy_elements(list, count, to, total_bytes); error != 0) return error;
  if (total_bytes > kMaxMessageBytes) return EINVAL;
  length_bytes = static_cast<uint32_t>(total_bytes);
  return 0;
}

/// Append bytes to the WQE's inline data. Return 0, or EINVAL if they exceed the ring's maximum.
[[nodiscard]] int copy_inline(transport::SendRing& ring, transport::SendWqe& wqe, const ibv_sge* list,
                              uint32_t count);
[[nodiscard]] int append_inline(transport::SendRing& ring, transport::SendWqe& wqe, const void* from,
                                size_t bytes);

[[nodiscard]] int set_ud_destination(const Qp& qp, transport::SendWqe& wqe, const ibv_ah* handle,
                                     uint32_t remote_qpn, uint32_t remote_qkey);

/// Fills a WQE that binds `mw` under `new_rkey`; `info` is the caller's own copy. Returns 0 or EINVAL.
[[nodiscard]] int set_bind(const Qp& qp, transport::SendWqe& wqe, const ibv_mw& mw, uint32_t new_rkey,
                           const ibv_mw_bind_info& info);

/// Checks the rule and the QP for a WQE that is otherwise complete. The caller has checked the opcode and the
/// flags. Returns 0 or EINVAL.
[[nodiscard]] inline int check_allowed(const Qp& qp, const transport::SendWqe& wqe, const SendRule& rule) {
  constexpr uint32_t kEightBytes = 8;
  if ((wqe.flags & IBV_SEND_INLINE) != 0 && !rule.may_be_inline) return EINVAL;
  if (rule.needs_rd_atomic && qp.max_rd_atomic == 0) return EINVAL;
  if (rule.payload == Payload::eight && wqe.length_bytes != kEightBytes) return EINVAL;
  return 0;
}

/// Checks the opcode and the flags as well.
[[nodiscard]] inline int check_wqe(const Qp& qp, const transport::SendWqe& wqe) {
  const SendRule& rule = send_rule_of(static_cast<uint32_t>(wqe.opcode));
  if (!rule.allowed_on(qp.qp_base.qp_type) || (wqe.flags & ~kKnownSendFlags) != 0) return EINVAL;
  return check_allowed(qp, wqe, rule);
}

/// IBA 10.8.3.1, table 91: no sends before RTS; in the error states work is accepted and flushed.
[[nodiscard]] inline bool takes_sends(transport::QpState state) {
  return state >= transport::QpState::rts;
}

/// Makes requests of [first, end), which are built but not published, fail as the scenario decides.
void make_requests_fail(Qp& qp, uint32_t first, uint32_t end);

/// Notifies the engine of WQEs published on the send ring. A program with few outstanding WQEs probably waits
/// for them, so they are transmitted within the call. With more, the doorbell lets the engine transmit them
/// in bursts.
inline void announce_sends(Qp& qp) {
  constexpr uint32_t kFewUnderWay = 2;
  const transport::SendRing& ring = *qp.send_ring;
  if (ring.tail() - ring.head() <= kFewUnderWay &&
      qp.engine->backend->serve_posted(qp.shared->core_index, qp.transport_qp))
    return;
  qp.core->ring_doorbell(qp.transport_qp);
}

}  // namespace faultline::verbs
