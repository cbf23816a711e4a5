// SPDX-License-Identifier: BSD-3-Clause
// Every event in every state, and the sequences in which the program and the progress thread take turns.
#include "pmd_glue/device/progress_state.hpp"

#include <atomic>
#include <map>
#include <thread>

#include <gtest/gtest.h>

namespace faultline::glue::progress_state_test {
namespace {

using S = ProgressState;
using E = ProgressEvent;
using A = ProgressAction;
using Row = std::map<E, ProgressTransition>;

std::map<S, Row> expected() {
  return {
      {S::progress_thread,
       {{E::call, {S::program, A::drive}},
        {E::rest, {S::progress_thread, A::wake_progress_thread}},
        {E::check, {S::progress_thread, A::drive}},
        {E::ring, {S::progress_thread, A::drive}},
        {E::close, {S::closed, A::none}}}},
      {S::program,
       {{E::call, {S::program, A::drive}},
        {E::rest, {S::progress_thread, A::wake_progress_thread}},
        {E::check, {S::program_silent, A::leave_to_program}},
        {E::ring, {S::program_away, A::drive}},
        {E::close, {S::closed, A::none}}}},
      {S::program_silent,
       {{E::call, {S::program, A::drive}},
        {E::rest, {S::progress_thread, A::wake_progress_thread}},
        {E::check, {S::program_away, A::drive}},
        {E::ring, {S::program_away, A::drive}},
        {E::close, {S::closed, A::none}}}},
      {S::program_away,
       {{E::call, {S::program, A::drive}},
        {E::rest, {S::progress_thread, A::wake_progress_thread}},
        {E::check, {S::program_away, A::drive}},
        {E::ring, {S::program_away, A::drive}},
        {E::close, {S::closed, A::none}}}},
      {S::lcores,
       {{E::call, {S::lcores, A::none}},
        {E::rest, {S::lcores, A::none}},
        {E::check, {S::lcores, A::leave_to_lcores}},
        {E::ring, {S::lcores, A::leave_to_lcores}},
        {E::close, {S::closed, A::none}}}},
      {S::closed,
       {{E::call, {S::closed, A::none}},
        {E::rest, {S::closed, A::none}},
        {E::check, {S::closed, A::none}},
        {E::ring, {S::closed, A::none}},
        {E::close, {S::closed, A::none}}}},
  };
}

TEST(ProgressState, HasATransitionForEveryEventInEveryState) {
  const auto states = expected();
  for (uint8_t state = 0; state < static_cast<uint8_t>(S::count_); ++state)
    for (uint8_t event = 0; event < static_cast<uint8_t>(E::count_); ++event) {
      const auto row = states.find(S{state});
      ASSERT_NE(row, states.end()) << int{state};
      const auto cell = row->second.find(E{event});
      ASSERT_NE(cell, row->second.end()) << int{state} << " " << int{event};
      EXPECT_EQ(transition(S{state}, E{event}), cell->second) << int{state} << " " << int{event};
    }
}

TEST(ProgressState, TheProgressThreadDrivesUntilTheProgramCalls) {
  ProgressOwner owner(false);
  EXPECT_EQ(owner.note(E::check), A::drive);
  EXPECT_TRUE(owner.note_call());
  EXPECT_EQ(owner.note(E::check), A::leave_to_program);
  EXPECT_TRUE(owner.note_call());
  EXPECT_TRUE(owner.note_call());
  EXPECT_EQ(owner.note(E::check), A::leave_to_program);
  EXPECT_EQ(owner.note(E::check), A::drive) << "no call between two checks";
  EXPECT_EQ(owner.note(E::check), A::drive);
}

// A program that spins on its memory has polled before, and does not see the frame that it waits for.
TEST(ProgressState, TheProgressThreadDrivesAtARingHoweverRecentlyTheProgramCalled) {
  ProgressOwner owner(false);
  EXPECT_FALSE(owner.program_polls());
  EXPECT_LT(owner.program_cpu(), 0);
  EXPECT_TRUE(owner.note_call());
  EXPECT_GE(owner.program_cpu(), 0);
  EXPECT_EQ(owner.note(E::ring), A::drive);
  EXPECT_EQ(owner.note(E::check), A::drive) << "the program has not called since";
  EXPECT_TRUE(owner.program_polls());
  EXPECT_TRUE(owner.note_call());
  EXPECT_EQ(owner.note(E::check), A::leave_to_program);
  static_cast<void>(owner.note(E::rest));
  EXPECT_FALSE(owner.program_polls()) << "it waits for an event, acknowledgements included";
}

TEST(ProgressState, AProgramThatRestsIsRelievedAtOnce) {
  ProgressOwner owner(false);
  EXPECT_TRUE(owner.note_call());
  EXPECT_EQ(owner.note(E::rest), A::wake_progress_thread);
  EXPECT_EQ(owner.note(E::check), A::drive);
  EXPECT_TRUE(owner.note_call());
  EXPECT_EQ(owner.note(E::check), A::leave_to_program);
  EXPECT_EQ(owner.note(E::rest), A::wake_progress_thread) << "the progress thread naps";
  EXPECT_EQ(owner.note(E::check), A::drive);
}

TEST(ProgressState, OnlyLcoresDriveADedicatedDevice) {
  ProgressOwner owner(true);
  EXPECT_FALSE(owner.note_call());
  EXPECT_EQ(owner.note(E::rest), A::none);
  EXPECT_EQ(owner.note(E::check), A::leave_to_lcores);
  EXPECT_FALSE(owner.is_closed());
}

TEST(ProgressState, NoThreadDrivesAClosedDevice) {
  for (const bool dedicated : {false, true}) {
    ProgressOwner owner(dedicated);
    static_cast<void>(owner.note_call());
    EXPECT_EQ(owner.note(E::close), A::none);
    EXPECT_TRUE(owner.is_closed());
    EXPECT_FALSE(owner.note_call());
    EXPECT_EQ(owner.note(E::rest), A::none);
    EXPECT_EQ(owner.note(E::check), A::none);
    EXPECT_TRUE(owner.is_closed());
  }
}

// A close between another thread's load and its store must not be lost.
TEST(ProgressState, CloseLastsAgainstConcurrentCallsAndChecks) {
  for (int round = 0; round < 200; ++round) {
    ProgressOwner owner(false);
    std::atomic<bool> go{false};
    std::thread caller([&] {
      while (!go.load()) {
      }
      for (int i = 0; i < 100; ++i) {
        static_cast<void>(owner.note_call());
        static_cast<void>(owner.note(E::check));
      }
    });
    go.store(true);
    static_cast<void>(owner.note(E::close));
    caller.join();
    EXPECT_TRUE(owner.is_closed());
  }
}

}  // namespace
}  // namespace faultline::glue::progress_state_test
