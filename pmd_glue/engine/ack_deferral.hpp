// SPDX-License-Identifier: BSD-3-Clause
// Decides which turns skip Core::poll, so that an ACK leaves after the program's next message
// (docs/design/packet.md, "When an ACK leaves one turn late"). A peer mostly waits for that message; no
// thread waits for the ACK (IBA 9.7.5.1.2 sets no deadline). Pure: times and facts are arguments.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "pmd_glue/engine/caller_tracker.hpp"

namespace faultline::glue {

class AckDeferral {
 public:
  /// `at_once_ns`: see CallerTracker.
  explicit AckDeferral(uint64_t at_once_ns = CallerTracker::kAtOnceNs) : callers_(at_once_ns) {}

  /// Number of polls skipped in a row. Four at most: so many messages share one ACK.
  enum class State : uint8_t { none_skipped, one_skipped, two_skipped, three_skipped, four_skipped, count_ };
  enum class Event : uint8_t {
    lone_completion,  ///< a turn gave a prompt program exactly one receive completion
    other_turn,
    control_call,  ///< a call that may end a QP: its deferred ACK would be lost
    count_
  };
  enum class Action : uint8_t {
    poll,
    defer,
    none  ///< no poll is owed
  };
  struct Transition {
    State next;
    Action action;
    friend bool operator==(const Transition&, const Transition&) = default;
  };
  /// What a turn has received.
  struct TurnFacts {
    bool by_program = false;  ///< the turn runs in a verbs call, after which the program sees completions
    bool moved_frames = false;
    uint64_t completions = 0;  ///< receives completed since the program's last turn that moved frames
    bool is_prompt = false;    ///< the program polls again at once (CallerTracker)
  };

  [[nodiscard]] static constexpr Transition transition(State state, Event event) {
    return kTable[static_cast<size_t>(state)][static_cast<size_t>(event)];
  }

  /// More than one completion in a turn is a stream, in which the program does not wait for each message.
  [[nodiscard]] static constexpr Event event_of(const TurnFacts& turn) {
    return turn.by_program && turn.moved_frames && turn.completions == 1 && turn.is_prompt
               ? Event::lone_completion
               : Event::other_turn;
  }

  /// Records that the program calls again.
  void note_call(uint64_t now_ns) { callers_.note_return(now_ns); }

  /// Decides whether a turn polls, after it has received. `receives_completed` returns the core's total; it
  /// is a call, so only turns that may defer make it.
  template <typename ReceivesCompleted>
  [[nodiscard, gnu::always_inline]] inline Action after_receive(bool by_program, bool moved_frames,
                                                                ReceivesCompleted receives_completed,
                                                                uint64_t now_ns) {
    TurnFacts turn{.by_program = by_program, .moved_frames = moved_frames};
    if (moved_frames && by_program) {
      const uint64_t seen = std::exchange(receives_seen_, receives_completed());
      turn.completions = receives_seen_ - seen;
      if (turn.completions != 0) callers_.note_completion_returned(now_ns);
      turn.is_prompt = callers_.is_prompt();
    }
    if (event_of(turn) == Event::lone_completion) return step(Event::lone_completion);
    // As transition() in every state (asserted below), without a look-up in turns that do not defer.
    state_ = State::none_skipped;
    return Action::poll;
  }

  /// Returns `poll` if the core owes a poll, which the caller then makes.
  [[nodiscard]] Action before_control_call() { return step(Event::control_call); }

  [[nodiscard]] State state() const { return state_; }

  [[nodiscard]] static constexpr bool is_same_in_every_state(Event event, Transition expected) {
    for (const auto& row : kTable)
      if (row[static_cast<size_t>(event)] != expected) return false;
    return true;
  }

 private:
  static constexpr size_t kStates = static_cast<size_t>(State::count_);
  static constexpr size_t kEvents = static_cast<size_t>(Event::count_);
  using S = State;
  using A = Action;

  static constexpr std::array<std::array<Transition, kEvents>, kStates> kTable{{
      // lone_completion               other_turn                     control_call
      {{{S::one_skipped, A::defer}, {S::none_skipped, A::poll}, {S::none_skipped, A::none}}},
      {{{S::two_skipped, A::defer}, {S::none_skipped, A::poll}, {S::none_skipped, A::poll}}},
      {{{S::three_skipped, A::defer}, {S::none_skipped, A::poll}, {S::none_skipped, A::poll}}},
      {{{S::four_skipped, A::defer}, {S::none_skipped, A::poll}, {S::none_skipped, A::poll}}},
      {{{S::none_skipped, A::poll}, {S::none_skipped, A::poll}, {S::none_skipped, A::poll}}},
  }};

  Action step(Event event) {
    const Transition to = transition(state_, event);
    state_ = to.next;
    return to.action;
  }

  State state_ = State::none_skipped;
  uint64_t receives_seen_ = 0;  ///< receives completed before the program's turn
  CallerTracker callers_;
};

static_assert(AckDeferral::is_same_in_every_state(AckDeferral::Event::other_turn,
                                                  {AckDeferral::State::none_skipped,
                                                   AckDeferral::Action::poll}));

}  // namespace faultline::glue
