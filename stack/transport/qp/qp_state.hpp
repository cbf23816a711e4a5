// SPDX-License-Identifier: BSD-3-Clause
// The QP state machine as a table: which transitions exist and which attributes each one requires and allows.
// IBA vol. 1, 11.2.5.3 (table 96); ibv_modify_qp(3).
#pragma once

#include <cstdint>

#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

/// One allowed transition of one QP type. Masks are QpAttrMask bits without kAttrState and kAttrCurState,
/// which every transition allows.
struct QpTransition {
  bool allowed = false;
  uint32_t required = 0;
  uint32_t optional = 0;
};

[[nodiscard]] QpTransition transition(QpType type, QpState from, QpState to);

/// True if the QP takes packets of its peer (IBA vol. 1, 10.3.1).
[[nodiscard]] constexpr bool can_receive(QpState state) {
  return state == QpState::rtr || state == QpState::rts || state == QpState::sqd || state == QpState::sqe;
}

/// True if modify_qp may move a QP from `from` to `to` with exactly these attributes.
[[nodiscard]] bool check_transition(QpType type, QpState from, QpState to, uint32_t mask);

}  // namespace faultline::transport
