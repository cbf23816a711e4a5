// SPDX-License-Identifier: BSD-3-Clause
// Every input in every state, against a transcription of chapters 12.9.7 and 12.11 of the specification,
// state by state.
#include "stack/cm/state.hpp"

#include <map>
#include <utility>

#include <gtest/gtest.h>

namespace faultline::cm::state_test {
namespace {

using S = State;
using I = Input;
using A = Action;
using Row = std::map<Input, Transition>;

/// Transitions before the program has answered a REQ.
Row unanswered_req() {
  return {{I::req, {S::mra_req_sent, A::send_mra}},  {I::delay, {S::mra_req_sent, A::send_mra}},
          {I::accept, {S::rep_sent, A::send_rep}},   {I::reject, {S::closed, A::send_rej}},
          {I::rej, {S::closed, A::report_rejected}}, {I::destroy, {S::closed, A::send_rej}}};
}

/// Transitions before the program has answered a REP.
Row unanswered_rep() {
  return {{I::rep, {S::mra_rep_sent, A::send_mra}},    {I::delay, {S::mra_rep_sent, A::send_mra}},
          {I::confirm, {S::established, A::send_rtu}}, {I::reject, {S::closed, A::send_rej}},
          {I::rej, {S::closed, A::report_rejected}},   {I::destroy, {S::closed, A::send_rej}}};
}

Row waits_for_rep() {
  return {{I::rep, {S::rep_received, A::take_rep}},
          {I::rej, {S::closed, A::report_rejected}},
          {I::expired, {S::closed, A::report_unreachable}},
          {I::destroy, {S::closed, A::send_rej_timeout}}};
}

Row waits_for_rtu(State self) {
  return {{I::req, {self, A::send_again}},
          {I::rtu, {S::established, A::report_established}},
          {I::notify_established, {S::established, A::report_established}},
          {I::dreq, {S::dreq_received, A::report_disconnected}},
          {I::rej, {S::closed, A::report_rejected}},
          {I::reject, {S::closed, A::send_rej}},
          {I::expired, {S::closed, A::report_unreachable}},
          {I::destroy, {S::closed, A::send_rej}}};
}

Row with(Row row, Input input, Transition transition) {
  row[input] = transition;
  return row;
}

std::map<State, Row> expected() {
  return {
      {S::listening, {{I::destroy, {S::closed, A::remove}}}},
      {S::req_sent, with(waits_for_rep(), I::mra_req, {S::mra_req_received, A::extend_wait})},
      {S::mra_req_received, waits_for_rep()},
      {S::rep_received, unanswered_rep()},
      {S::mra_rep_sent, unanswered_rep()},
      {S::req_received, unanswered_req()},
      {S::mra_req_sent, unanswered_req()},
      {S::rep_sent, with(waits_for_rtu(S::rep_sent), I::mra_rep, {S::mra_rep_received, A::extend_wait})},
      {S::mra_rep_received, waits_for_rtu(S::mra_rep_received)},
      {S::established,
       {{I::rep, {S::established, A::send_again}},
        {I::rej, {S::time_wait, A::report_rejected}},
        {I::dreq, {S::dreq_received, A::report_disconnected}},
        {I::disconnect, {S::dreq_sent, A::send_dreq}},
        {I::destroy, {S::dreq_sent, A::send_dreq}}}},
      {S::dreq_sent,
       {{I::drep, {S::time_wait, A::report_disconnected}},
        {I::dreq, {S::time_wait, A::answer_and_report_disconnected}},
        {I::rej, {S::time_wait, A::report_disconnected}},
        {I::expired, {S::time_wait, A::report_disconnected}}}},
      {S::dreq_received,
       {{I::disconnect, {S::time_wait, A::send_drep}}, {I::destroy, {S::time_wait, A::send_drep}}}},
      {S::time_wait,
       {{I::req, {S::time_wait, A::send_stale}},
        {I::dreq, {S::time_wait, A::send_drep}},
        {I::expired, {S::closed, A::report_time_wait_over}}}},
      {S::closed,
       {{I::req, {S::closed, A::send_again}},
        {I::rep, {S::closed, A::send_again}},
        {I::dreq, {S::closed, A::send_drep}},
        {I::destroy, {S::closed, A::remove}}}},
      {S::sidr_req_sent,
       {{I::sidr_rep, {S::closed, A::report_resolved}},
        {I::expired, {S::closed, A::report_service_unreachable}},
        {I::destroy, {S::closed, A::remove}}}},
      {S::sidr_req_received,
       {{I::answer, {S::sidr_rep_sent, A::send_sidr_rep}},
        {I::destroy, {S::sidr_rep_sent, A::send_sidr_reject}}}},
      {S::sidr_rep_sent,
       {{I::sidr_req, {S::sidr_rep_sent, A::send_again}}, {I::expired, {S::closed, A::remove}}}},
  };
}

TEST(StateTable, IsTheSpecifications) {
  const std::map<State, Row> rows = expected();
  ASSERT_EQ(rows.size(), static_cast<size_t>(State::count_));
  for (const auto& [state, row] : rows)
    for (size_t i = 0; i < static_cast<size_t>(Input::count_); ++i) {
      const auto input = static_cast<Input>(i);
      const auto said = row.find(input);
      // Inputs that are not listed change nothing.
      const Transition want = said != row.end() ? said->second : Transition{state, A::none};
      EXPECT_EQ(transition(state, input), want) << name_of(state) << " input " << i;
    }
}

// No state waits for a peer for ever, and every state that its owner has abandoned ends.
TEST(StateTable, EveryStateEnds) {
  for (size_t i = 0; i < static_cast<size_t>(State::count_); ++i) {
    State state = static_cast<State>(i);
    // The owner destroys the identifier, then time passes.
    state = transition(state, Input::destroy).next;
    for (int steps = 0; steps < 3 && state != State::closed; ++steps)
      state = transition(state, Input::expired).next;
    EXPECT_EQ(state, State::closed) << name_of(static_cast<State>(i));
  }
}

TEST(StateTable, NamesAreAllDifferent) {
  std::map<std::string_view, int> names;
  for (size_t i = 0; i < static_cast<size_t>(State::count_); ++i) ++names[name_of(static_cast<State>(i))];
  EXPECT_EQ(names.size(), static_cast<size_t>(State::count_));
}

}  // namespace
}  // namespace faultline::cm::state_test
