// SPDX-License-Identifier: BSD-3-Clause
// Every event in every state, every combination of a turn's facts, and the sequences of a ping-pong.
#include "pmd_glue/engine/ack_deferral.hpp"

#include <map>
#include <utility>

#include <gtest/gtest.h>

namespace faultline::glue::ack_deferral_test {
namespace {

using S = AckDeferral::State;
using E = AckDeferral::Event;
using A = AckDeferral::Action;

constexpr uint64_t kSoonNs = CallerTracker::kAtOnceNs;
constexpr uint64_t kLateNs = CallerTracker::kAtOnceNs + 1;
constexpr uint32_t kMostSkipped = 4;

std::map<std::pair<S, E>, AckDeferral::Transition> expected() {
  return {
      {{S::none_skipped, E::lone_completion}, {S::one_skipped, A::defer}},
      {{S::none_skipped, E::other_turn}, {S::none_skipped, A::poll}},
      {{S::none_skipped, E::control_call}, {S::none_skipped, A::none}},
      {{S::one_skipped, E::lone_completion}, {S::two_skipped, A::defer}},
      {{S::one_skipped, E::other_turn}, {S::none_skipped, A::poll}},
      {{S::one_skipped, E::control_call}, {S::none_skipped, A::poll}},
      {{S::two_skipped, E::lone_completion}, {S::three_skipped, A::defer}},
      {{S::two_skipped, E::other_turn}, {S::none_skipped, A::poll}},
      {{S::two_skipped, E::control_call}, {S::none_skipped, A::poll}},
      {{S::three_skipped, E::lone_completion}, {S::four_skipped, A::defer}},
      {{S::three_skipped, E::other_turn}, {S::none_skipped, A::poll}},
      {{S::three_skipped, E::control_call}, {S::none_skipped, A::poll}},
      {{S::four_skipped, E::lone_completion}, {S::none_skipped, A::poll}},
      {{S::four_skipped, E::other_turn}, {S::none_skipped, A::poll}},
      {{S::four_skipped, E::control_call}, {S::none_skipped, A::poll}},
  };
}

/// A program that receives one message at a time.
class Receiver {
 public:
  A turn(uint64_t completions, bool by_program = true, bool moved = true) {
    if (by_program) deferral.note_call(now_ns_);
    completed_ += completions;
    return deferral.after_receive(
        by_program, moved, [this] { return completed_; }, now_ns_);
  }
  /// Time passes until the program's next call.
  void wait(uint64_t ns) { now_ns_ += ns; }
  /// Makes the program prompt. Its ACKs are all sent.
  void become_prompt() {
    for (uint32_t i = 0; i < CallerTracker::kReturns; ++i) {
      EXPECT_EQ(turn(2), A::poll);
      wait(kSoonNs);
    }
    EXPECT_EQ(turn(0, true, false), A::poll);
  }

  AckDeferral deferral;

 private:
  uint64_t now_ns_ = 1'000'000;
  uint64_t completed_ = 0;
};

TEST(AckDeferral, HasATransitionForEveryEventInEveryState) {
  const auto rows = expected();
  for (uint8_t state = 0; state < static_cast<uint8_t>(S::count_); ++state)
    for (uint8_t event = 0; event < static_cast<uint8_t>(E::count_); ++event) {
      const auto row = rows.find({S{state}, E{event}});
      ASSERT_NE(row, rows.end()) << int{state} << " " << int{event};
      EXPECT_EQ(AckDeferral::transition(S{state}, E{event}), row->second) << int{state} << " " << int{event};
    }
}

TEST(AckDeferral, OnlyOneCompletionForAPromptProgramMayDefer) {
  for (const bool by_program : {false, true})
    for (const bool moved : {false, true})
      for (const uint64_t completions : {0, 1, 2, 3})
        for (const bool prompt : {false, true}) {
          const bool lone = by_program && moved && completions == 1 && prompt;
          EXPECT_EQ(AckDeferral::event_of({by_program, moved, completions, prompt}),
                    lone ? E::lone_completion : E::other_turn)
              << by_program << moved << completions << prompt;
        }
}

TEST(AckDeferral, FourTurnsInARowAreSkippedAtMost) {
  Receiver program;
  program.become_prompt();
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < kMostSkipped; ++i) {
      EXPECT_EQ(program.turn(1), A::defer) << i;
      program.wait(kSoonNs);
    }
    EXPECT_EQ(program.turn(1), A::poll) << "the fifth message";
    program.wait(kSoonNs);
  }
}

TEST(AckDeferral, ATurnWithoutACompletionPolls) {
  Receiver program;
  program.become_prompt();
  EXPECT_EQ(program.turn(1), A::defer);
  EXPECT_EQ(program.deferral.state(), S::one_skipped);
  EXPECT_EQ(program.turn(0), A::poll);
  EXPECT_EQ(program.deferral.state(), S::none_skipped);
}

TEST(AckDeferral, ATurnOfAnotherThreadPolls) {
  Receiver program;
  program.become_prompt();
  EXPECT_EQ(program.turn(1), A::defer);
  EXPECT_EQ(program.turn(1, false), A::poll);
}

TEST(AckDeferral, CountsCompletionsOfOtherThreadsTurnsWithTheProgramsNext) {
  Receiver program;
  program.become_prompt();
  EXPECT_EQ(program.turn(1, false), A::poll);
  EXPECT_EQ(program.turn(1), A::poll) << "two completions since the program's last turn";
}

TEST(AckDeferral, AProgramThatReturnsLateIsNotDeferredFor) {
  Receiver program;
  program.become_prompt();
  EXPECT_EQ(program.turn(1), A::defer);
  program.wait(kLateNs);
  EXPECT_EQ(program.turn(1), A::poll);
}

TEST(AckDeferral, AControlCallPollsWhatIsOwedOnce) {
  Receiver program;
  EXPECT_EQ(program.deferral.before_control_call(), A::none);
  program.become_prompt();
  EXPECT_EQ(program.deferral.before_control_call(), A::none);
  EXPECT_EQ(program.turn(1), A::defer);
  EXPECT_EQ(program.deferral.before_control_call(), A::poll);
  EXPECT_EQ(program.deferral.before_control_call(), A::none);
}

}  // namespace
}  // namespace faultline::glue::ack_deferral_test
