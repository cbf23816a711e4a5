// SPDX-License-Identifier: BSD-3-Clause
// The way of a new QP to RTS. Tests of all kinds take it, each with its own core.
#pragma once

#include <cstdint>

#include "stack/transport/core/core.hpp"
#include "stack/transport/qp/queue_pair.hpp"

namespace faultline::sim {

/// Moves a QP of any type from RESET to RTS. Returns 0 or the errno of the transition that the core refuses.
/// The masks are those of ibv_modify_qp(3). They do not come from the core's table, so that each test also
/// checks that the core accepts them.
[[nodiscard]] inline int take_to_rts(transport::Core& core, transport::QueuePair* qp,
                                     transport::QpAttributes attributes, TimeNs now) {
  using namespace transport;
  const auto modify = [&](QpState state, uint32_t mask) {
    attributes.state = state;
    return core.modify_qp(qp, attributes, mask | kAttrState, now);
  };
  if (qp->type == QpType::ud) {
    if (const int error = modify(QpState::init, kAttrPkeyIndex | kAttrPort | kAttrQkey); error != 0)
      return error;
    if (const int error = modify(QpState::rtr, 0); error != 0) return error;
    return modify(QpState::rts, kAttrSqPsn);
  }
  const bool responds = qp->type == QpType::rc || qp->type == QpType::xrc_recv;
  const bool requests = qp->type == QpType::rc || qp->type == QpType::xrc_send;
  uint32_t rtr = kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
  if (responds) rtr |= kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
  uint32_t rts = kAttrSqPsn;
  if (qp->type != QpType::uc) rts |= kAttrTimeout;
  if (requests) rts |= kAttrRetryCnt | kAttrRnrRetry | kAttrMaxQpRdAtomic;
  if (const int error = modify(QpState::init, kAttrPkeyIndex | kAttrPort | kAttrAccessFlags); error != 0)
    return error;
  if (const int error = modify(QpState::rtr, rtr); error != 0) return error;
  return modify(QpState::rts, rts);
}

}  // namespace faultline::sim
