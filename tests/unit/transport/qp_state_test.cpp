// SPDX-License-Identifier: BSD-3-Clause
// Every transition of every QP type against a separate table: required attributes as ibv_modify_qp(3) lists
// them, transitions and optional attributes as in IBA vol. 1, 11.2.5.3 (table 96).
#include "stack/transport/qp/qp_state.hpp"

#include <map>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

namespace faultline::transport {
namespace {

struct Row {
  uint32_t required, optional;
};
using Key = std::tuple<QpType, QpState, QpState>;

constexpr QpState kStates[] = {QpState::reset, QpState::init, QpState::rtr, QpState::rts,
                               QpState::sqd,   QpState::sqe,  QpState::err};
constexpr QpType kTypes[] = {QpType::rc, QpType::uc, QpType::ud};

std::map<Key, Row> expected_table() {
  std::map<Key, Row> table;
  for (const QpType type : kTypes) {
    for (const QpState from : kStates) {
      table[{type, from, QpState::reset}] = {0, 0};
      if (from != QpState::reset) table[{type, from, QpState::err}] = {0, 0};
    }
  }
  using enum QpState;
  const auto row = [&table](QpType type, QpState from, QpState to, uint32_t required, uint32_t optional) {
    table[{type, from, to}] = {required, optional};
  };
  // ibv_modify_qp(3): UD.
  row(QpType::ud, reset, init, kAttrPkeyIndex | kAttrPort | kAttrQkey, 0);
  row(QpType::ud, init, init, 0, kAttrPkeyIndex | kAttrPort | kAttrQkey);
  row(QpType::ud, init, rtr, 0, kAttrPkeyIndex | kAttrQkey);
  row(QpType::ud, rtr, rts, kAttrSqPsn, kAttrQkey | kAttrRateLimit);
  row(QpType::ud, rts, rts, 0, kAttrQkey | kAttrRateLimit);
  row(QpType::ud, rts, sqd, 0, kAttrEnSqdAsyncNotify);
  row(QpType::ud, sqd, rts, 0, kAttrQkey | kAttrRateLimit);
  row(QpType::ud, sqd, sqd, 0, kAttrPkeyIndex | kAttrQkey);
  row(QpType::ud, sqe, rts, 0, kAttrQkey);
  // UC.
  constexpr uint32_t connected_init = kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
  constexpr uint32_t connected_rtr = kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
  constexpr uint32_t change = kAttrAccessFlags | kAttrAltPath | kAttrPathMigState;
  row(QpType::uc, reset, init, connected_init, 0);
  row(QpType::uc, init, init, 0, connected_init);
  row(QpType::uc, init, rtr, connected_rtr, kAttrAltPath | kAttrAccessFlags | kAttrPkeyIndex);
  row(QpType::uc, rtr, rts, kAttrSqPsn, change | kAttrRateLimit);
  row(QpType::uc, rts, rts, 0, change | kAttrRateLimit);
  row(QpType::uc, rts, sqd, 0, kAttrEnSqdAsyncNotify);
  row(QpType::uc, sqd, rts, 0, change | kAttrRateLimit);
  row(QpType::uc, sqd, sqd, 0, change | kAttrAv | kAttrPkeyIndex);
  row(QpType::uc, sqe, rts, 0, kAttrAccessFlags);
  // RC has no SQE: a send error leads to ERR.
  row(QpType::rc, reset, init, connected_init, 0);
  row(QpType::rc, init, init, 0, connected_init);
  row(QpType::rc, init, rtr, connected_rtr | kAttrMaxDestRdAtomic | kAttrMinRnrTimer,
      kAttrAltPath | kAttrAccessFlags | kAttrPkeyIndex);
  row(QpType::rc, rtr, rts, kAttrSqPsn | kAttrMaxQpRdAtomic | kAttrRetryCnt | kAttrRnrRetry | kAttrTimeout,
      change | kAttrMinRnrTimer | kAttrRateLimit);
  row(QpType::rc, rts, rts, 0, change | kAttrMinRnrTimer | kAttrRateLimit);
  row(QpType::rc, rts, sqd, 0, kAttrEnSqdAsyncNotify);
  row(QpType::rc, sqd, rts, 0, change | kAttrMinRnrTimer | kAttrRateLimit);
  row(QpType::rc, sqd, sqd, 0,
      change | kAttrAv | kAttrPkeyIndex | kAttrPort | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry |
          kAttrMaxQpRdAtomic | kAttrMaxDestRdAtomic | kAttrMinRnrTimer);
  return table;
}

std::string name(const Key& key) {
  return "type " + std::to_string(static_cast<int>(std::get<0>(key))) + " from " +
         std::to_string(static_cast<int>(std::get<1>(key))) + " to " +
         std::to_string(static_cast<int>(std::get<2>(key)));
}

template <typename Visit>
void for_each_transition(Visit visit) {
  for (const QpType type : kTypes)
    for (const QpState from : kStates)
      for (const QpState to : kStates) visit(Key{type, from, to});
}

constexpr uint32_t kImplied = kAttrState | kAttrCurState;  // allowed in every transition

TEST(QpState, ExactlyTheTransitionsOfTheTableExist) {
  const auto table = expected_table();
  for_each_transition([&](const Key& key) {
    const auto [type, from, to] = key;
    EXPECT_EQ(transition(type, from, to).allowed, table.contains(key)) << name(key);
  });
}

TEST(QpState, AttributesAreThoseOfTheTable) {
  const auto table = expected_table();
  for_each_transition([&](const Key& key) {
    const auto found = table.find(key);
    if (found == table.end()) return;
    const auto [type, from, to] = key;
    const QpTransition row = transition(type, from, to);
    EXPECT_EQ(row.required & ~kImplied, found->second.required) << name(key);
    EXPECT_EQ(row.optional & ~kImplied, found->second.optional) << name(key);
  });
}

TEST(QpState, EachSingleAttributeMissingOrTooMuchIsRefused) {
  const auto table = expected_table();
  for_each_transition([&](const Key& key) {
    const auto [type, from, to] = key;
    const auto found = table.find(key);
    if (found == table.end()) {
      EXPECT_FALSE(check_transition(type, from, to, kAttrState)) << name(key);
      EXPECT_FALSE(check_transition(type, from, to, ~0U)) << name(key);
      return;
    }
    const auto [required, optional] = found->second;
    EXPECT_TRUE(check_transition(type, from, to, kAttrState | required)) << name(key);
    EXPECT_TRUE(check_transition(type, from, to, kImplied | required | optional)) << name(key);
    for (unsigned bit = 0; bit < 32; ++bit) {
      const uint32_t attribute = 1U << bit;
      if ((attribute & kImplied) != 0) continue;
      if ((required & attribute) != 0)
        EXPECT_FALSE(check_transition(type, from, to, kAttrState | (required & ~attribute)))
            << name(key) << " without bit " << bit;
      else
        EXPECT_EQ(check_transition(type, from, to, kAttrState | required | attribute),
                  (optional & attribute) != 0)
            << name(key) << " with bit " << bit;
    }
  });
}

}  // namespace
}  // namespace faultline::transport
