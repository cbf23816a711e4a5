// SPDX-License-Identifier: BSD-3-Clause
// The thread that drives the engines of a device, as a table of states and events (docs/design/progress.md).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include <sched.h>

namespace faultline::glue {

enum class ProgressState : uint8_t {
  progress_thread,  ///< automatic: no verbs call drives
  program,          ///< automatic: a verbs call has driven since the progress thread's last check
  program_silent,   ///< automatic: a verbs call has driven before the last check, but none since
  program_away,     ///< automatic: the program has stopped to poll, and waits for no event
  lcores,           ///< dedicated: each engine has its own thread
  closed,           ///< the device is shut down
  count_
};

enum class ProgressEvent : uint8_t {
  call,   ///< a verbs call of the program polls; any program thread
  rest,   ///< the program is about to wait for an event; any program thread
  check,  ///< the progress thread looks after the device
  ring,   ///< a frame has woken the progress thread
  close,
  count_
};

/// What the thread that reports the event does next.
enum class ProgressAction : uint8_t {
  none,
  drive,  ///< it runs a turn, if no other thread holds the TurnLock
  leave_to_program,
  leave_to_lcores,
  wake_progress_thread
};

struct ProgressTransition {
  ProgressState next;
  ProgressAction action;
  friend bool operator==(const ProgressTransition&, const ProgressTransition&) = default;
};

using ProgressTable = std::array<std::array<ProgressTransition, static_cast<size_t>(ProgressEvent::count_)>,
                                 static_cast<size_t>(ProgressState::count_)>;

consteval ProgressTable make_progress_table() {
  using S = ProgressState;
  using E = ProgressEvent;
  using A = ProgressAction;
  ProgressTable table{};
  // Default: stay in the state, without an action.
  for (size_t state = 0; state < table.size(); ++state)
    for (ProgressTransition& to : table[state]) to = {static_cast<S>(state), A::none};
  const auto on = [&table](std::initializer_list<S> states, E event, S next, A action) {
    for (const S state : states)
      table[static_cast<size_t>(state)][static_cast<size_t>(event)] = {next, action};
  };
  for (const S automatic : {S::progress_thread, S::program, S::program_silent, S::program_away}) {
    on({automatic}, E::call, S::program, A::drive);
    on({automatic}, E::rest, S::progress_thread, A::wake_progress_thread);
    on({automatic}, E::close, S::closed, A::none);
  }
  // A program that has called since the last check continues to drive.
  on({S::program}, E::check, S::program_silent, A::leave_to_program);
  on({S::progress_thread}, E::check, S::progress_thread, A::drive);
  on({S::program_silent, S::program_away}, E::check, S::program_away, A::drive);
  // The program would have found the frame had it polled.
  on({S::progress_thread}, E::ring, S::progress_thread, A::drive);
  on({S::program, S::program_silent, S::program_away}, E::ring, S::program_away, A::drive);
  on({S::lcores}, E::check, S::lcores, A::leave_to_lcores);
  on({S::lcores}, E::ring, S::lcores, A::leave_to_lcores);
  on({S::lcores}, E::close, S::closed, A::none);
  return table;
}

inline constexpr ProgressTable kProgressTable = make_progress_table();

[[nodiscard]] constexpr ProgressTransition transition(ProgressState state, ProgressEvent event) {
  return kProgressTable[static_cast<size_t>(state)][static_cast<size_t>(event)];
}

/// The state of one device. Any thread.
class ProgressOwner {
 public:
  explicit ProgressOwner(bool dedicated)
      : state_(dedicated ? ProgressState::lcores : ProgressState::progress_thread) {}

  /// Reports a verbs call that polls. Returns whether it drives. The two states of a program that keeps
  /// polling cost one load; the table has the same transitions.
  [[nodiscard]] bool note_call() {
    using S = ProgressState;
    using A = ProgressAction;
    static_assert(transition(S::program, ProgressEvent::call) == ProgressTransition{S::program, A::drive});
    static_assert(transition(S::lcores, ProgressEvent::call) == ProgressTransition{S::lcores, A::none});
    const S state = state_.load(std::memory_order_relaxed);
    if (state == S::program) return true;
    if (state == S::lcores || note(ProgressEvent::call) != A::drive) return false;
    program_cpu_.store(sched_getcpu(), std::memory_order_relaxed);
    return true;
  }
  ProgressAction note(ProgressEvent event);

  /// True if the program polls its CQs now and then, rather than wait for events.
  [[nodiscard]] bool program_polls() const {
    using S = ProgressState;
    const S state = state_.load(std::memory_order_relaxed);
    return state == S::program || state == S::program_silent || state == S::program_away;
  }

  /// The CPU on which the program began to drive the last time; -1: it has not, or the system cannot tell.
  [[nodiscard]] int program_cpu() const { return program_cpu_.load(std::memory_order_relaxed); }

  [[nodiscard]] bool is_closed() const {
    return state_.load(std::memory_order_acquire) == ProgressState::closed;
  }

 private:
  std::atomic<ProgressState> state_;
  std::atomic<int> program_cpu_{-1};
};

// Sequentially consistent: the program stores its rest before it reads whether the progress thread sleeps.
// The progress thread stores that it sleeps before its last check.
inline ProgressAction ProgressOwner::note(ProgressEvent event) {
  ProgressState state = state_.load(std::memory_order_seq_cst);
  for (;;) {
    const ProgressTransition to = transition(state, event);
    if (to.next == state || state_.compare_exchange_weak(state, to.next, std::memory_order_seq_cst))
      return to.action;
  }
}

}  // namespace faultline::glue
