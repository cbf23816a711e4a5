// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/qp/qp_state.hpp"

namespace faultline::transport {

namespace {

constexpr uint32_t kConnectedAccess = kAttrPkeyIndex | kAttrAccessFlags;

constexpr QpTransition kForbidden{};

constexpr QpTransition allow(uint32_t required, uint32_t optional) {
  return {true, required, optional};
}

constexpr QpTransition to_init(QpType type) {
  return type == QpType::ud ? allow(kAttrPkeyIndex | kAttrPort | kAttrQkey, 0)
                            : allow(kAttrPkeyIndex | kAttrPort | kAttrAccessFlags, 0);
}

constexpr QpTransition init_to_init(QpType type) {
  return type == QpType::ud ? allow(0, kAttrPkeyIndex | kAttrPort | kAttrQkey)
                            : allow(0, kAttrPkeyIndex | kAttrPort | kAttrAccessFlags);
}

constexpr QpTransition init_to_rtr(QpType type) {
  constexpr uint32_t connected = kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
  switch (type) {
    case QpType::rc:
      return allow(connected | kAttrMaxDestRdAtomic | kAttrMinRnrTimer, kAttrAltPath | kConnectedAccess);
    case QpType::uc:
      return allow(connected, kAttrAltPath | kConnectedAccess);
    case QpType::ud:
      return allow(0, kAttrPkeyIndex | kAttrQkey);
    case QpType::xrc_send:
      return allow(connected, kAttrAltPath | kConnectedAccess);
    case QpType::xrc_recv:
      return allow(connected | kAttrMaxDestRdAtomic | kAttrMinRnrTimer, kAttrAltPath | kConnectedAccess);
  }
  return kForbidden;
}

constexpr QpTransition rtr_to_rts(QpType type) {
  constexpr uint32_t connected_optional = kAttrCurState | kAttrAltPath | kAttrAccessFlags | kAttrPathMigState;
  switch (type) {
    case QpType::rc:
      return allow(kAttrSqPsn | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMaxQpRdAtomic,
                   connected_optional | kAttrMinRnrTimer | kAttrRateLimit);
    case QpType::uc:
      return allow(kAttrSqPsn, connected_optional | kAttrRateLimit);
    case QpType::ud:
      return allow(kAttrSqPsn, kAttrQkey | kAttrRateLimit);
    case QpType::xrc_send:
      return allow(kAttrSqPsn | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMaxQpRdAtomic,
                   connected_optional | kAttrRateLimit);
    case QpType::xrc_recv:
      return allow(kAttrSqPsn | kAttrTimeout, connected_optional | kAttrMinRnrTimer);
  }
  return kForbidden;
}

/// Attributes for RTS to RTS and SQD to RTS.
constexpr QpTransition to_rts(QpType type) {
  constexpr uint32_t connected = kAttrAccessFlags | kAttrAltPath | kAttrPathMigState;
  switch (type) {
    case QpType::rc:
      return allow(0, connected | kAttrMinRnrTimer | kAttrRateLimit);
    case QpType::uc:
      return allow(0, connected | kAttrRateLimit);
    case QpType::ud:
      return allow(0, kAttrQkey | kAttrRateLimit);
    case QpType::xrc_send:
      return allow(0, connected | kAttrRateLimit);
    case QpType::xrc_recv:
      return allow(0, connected | kAttrMinRnrTimer);
  }
  return kForbidden;
}

constexpr QpTransition sqe_to_rts(QpType type) {
  switch (type) {
    case QpType::rc:
      return kForbidden;  // an RC QP never enters SQE
    case QpType::uc:
      return allow(0, kAttrAccessFlags);
    case QpType::ud:
      return allow(0, kAttrQkey);
    case QpType::xrc_send:
    case QpType::xrc_recv:
      return kForbidden;  // as RC
  }
  return kForbidden;
}

constexpr QpTransition sqd_to_sqd(QpType type) {
  constexpr uint32_t connected =
      kAttrAv | kAttrAltPath | kAttrAccessFlags | kAttrPkeyIndex | kAttrPathMigState;
  switch (type) {
    case QpType::rc:
      return allow(0, connected | kAttrPort | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry |
                          kAttrMaxQpRdAtomic | kAttrMaxDestRdAtomic | kAttrMinRnrTimer);
    case QpType::uc:
      return allow(0, connected);
    case QpType::ud:
      return allow(0, kAttrPkeyIndex | kAttrQkey);
    case QpType::xrc_send:
      return allow(0,
                   connected | kAttrPort | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMaxQpRdAtomic);
    case QpType::xrc_recv:
      return allow(0, connected | kAttrPort | kAttrTimeout | kAttrMaxDestRdAtomic | kAttrMinRnrTimer);
  }
  return kForbidden;
}

}  // namespace

QpTransition transition(QpType type, QpState from, QpState to) {
  if (to == QpState::reset) return allow(0, 0);
  // A QP in RESET cannot enter the error state; Linux forbids this too (drivers/infiniband/core/verbs.c,
  // qp_state_table).
  if (to == QpState::err) return from == QpState::reset ? kForbidden : allow(0, 0);
  switch (from) {
    case QpState::reset:
      return to == QpState::init ? to_init(type) : kForbidden;
    case QpState::init:
      if (to == QpState::init) return init_to_init(type);
      return to == QpState::rtr ? init_to_rtr(type) : kForbidden;
    case QpState::rtr:
      return to == QpState::rts ? rtr_to_rts(type) : kForbidden;
    case QpState::rts:
      if (to == QpState::rts) return to_rts(type);
      return to == QpState::sqd ? allow(0, kAttrEnSqdAsyncNotify) : kForbidden;
    case QpState::sqd:
      if (to == QpState::rts) return to_rts(type);
      return to == QpState::sqd ? sqd_to_sqd(type) : kForbidden;
    case QpState::sqe:
      return to == QpState::rts ? sqe_to_rts(type) : kForbidden;
    case QpState::err:
      return kForbidden;
  }
  return kForbidden;
}

bool check_transition(QpType type, QpState from, QpState to, uint32_t mask) {
  const QpTransition row = transition(type, from, to);
  if (!row.allowed) return false;
  const uint32_t given = mask & ~uint32_t{kAttrState | kAttrCurState};
  return (given & row.required) == row.required && (given & ~(row.required | row.optional)) == 0;
}

}  // namespace faultline::transport
