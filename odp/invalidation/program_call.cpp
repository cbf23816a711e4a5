// SPDX-License-Identifier: BSD-3-Clause
#include "odp/invalidation/program_call.hpp"

#include "odp/copy/fault_handler.hpp"
#include "odp/invalidation/invalidation_monitor.hpp"
#include "odp/invalidation/process_page.hpp"
#include "stack/base/process/errno_kept.hpp"
#include "stack/base/process/fork_generation.hpp"
#include "stack/base/process/signals_blocked.hpp"

namespace faultline::odp {
namespace {

using CallGuard = InvalidationMonitor::CallGuard;

/// If copies cannot be restarted: while this thread is in a call that may wait for the monitor, no thread
/// waits for the turns that this thread has interrupted. Returns false if that is not needed.
bool suspend_own_sessions(const CallGuard& guard, int change) {
  if (has_restartable_copies() || guard.monitor == nullptr) return false;
  guard.monitor->for_each_sink([change](InvalidationSink& sink) { sink.quiescence().suspend_own(change); });
  return true;
}

/// Calls mark(sink) for each domain with pages in the range, and returns when no engine touches them by an
/// older check. False if there are no such pages.
template <typename Mark>
bool mark_and_pass(InvalidationMonitor& monitor, const AddressRange& range, Mark mark) {
  bool any = false;
  {
    const SignalsBlocked blocked;
    monitor.for_each_touched(range.start, range.end, [&](InvalidationSink& sink) { any |= mark(sink); });
  }
  if (!any) return false;
  revoke_tickets();
  monitor.for_each_touched(range.start, range.end, [](InvalidationSink& sink) {
    sink.quiescence().wait_for_copies(sink.quiescence().advance());
  });
  return true;
}

void release_pins(InvalidationMonitor& monitor, const AddressRange& range) {
  const SignalsBlocked blocked;
  monitor.for_each_touched(range.start, range.end,
                           [&](InvalidationSink& sink) { sink.release_pins(range.start, range.end); });
}

void before_fork() {
  // Page faults would wait while the kernel copies the page tables, so engines leave them to other threads.
  AddressSpaceCall::begin();
  const CallGuard guard;
  if (guard.monitor == nullptr) return;
  suspend_own_sessions(guard, 1);
  const SignalsBlocked blocked;
  guard.monitor->for_each_sink([](InvalidationSink& sink) { sink.mark_for_fork(); });
  revoke_tickets();
  guard.monitor->for_each_sink(
      [](InvalidationSink& sink) { sink.quiescence().wait_for_copies(sink.quiescence().advance()); });
}

void after_fork_in_parent() {
  AddressSpaceCall::end();
  suspend_own_sessions(CallGuard(), -1);
}

void after_fork_in_child() {
  // Nothing of the parent's is released or read: its threads, and the locks that they held, do not exist
  // here.
  AddressSpaceCall::forget_in_child();
  own_signals_in_child();
}

constexpr ForkHandlers kForkHandlers{
    .prepare = before_fork, .in_parent = after_fork_in_parent, .in_child = after_fork_in_child};

// At load time: hooked calls of the program are counted before any domain exists.
[[gnu::constructor]] void register_fork_handlers() {
  set_fork_handlers(kForkHandlers);
}

}  // namespace

ProgramCall::ProgramCall(uint64_t start, uint64_t end, PageEvent change)
    : range_{start, end}, change_(change) {
  if (range_.is_empty()) return;
  const CallGuard guard;
  if (guard.monitor == nullptr) return;
  is_suspended_ = suspend_own_sessions(guard, 1);
  if (!guard.monitor->touches(start, end)) return;
  const ErrnoKept kept;
  if (change == PageEvent::make_copy_on_write) {
    mark_and_pass(*guard.monitor, range_,
                  [&](InvalidationSink& sink) { return sink.apply(range_.start, range_.end, change_); });
    return;
  }
  // Precedes the marks: registrations and page-ins from here on consult the ledger.
  CallLedger& ledger = ProcessPage::find()->ledger;
  entry_ = ledger.begin(range_);
  is_marked_ = true;
  const PageEvent mark = change == PageEvent::kill ? PageEvent::doom : PageEvent::suspend;
  if (mark_and_pass(*guard.monitor, range_,
                    [&](InvalidationSink& sink) { return sink.apply(range_.start, range_.end, mark); }))
    release_pins(*guard.monitor, range_);
  if (entry_ != nullptr) entry_->note_marked(mark);
}

ProgramCall::~ProgramCall() {
  if (is_marked_) {
    const ErrnoKept kept;
    settle_marks();
  }
  if (is_suspended_) suspend_own_sessions(CallGuard(), -1);
}

void ProgramCall::settle_marks() {
  CallLedger& ledger = ProcessPage::find()->ledger;
  const CallGuard guard;
  InvalidationMonitor* const monitor = guard.monitor;  // nullptr: the last domain was destroyed meanwhile
  const bool unmaps = change_ == PageEvent::kill;
  // The call's own events were read before it returned, but may not have been applied yet. They must find
  // the pages doomed, which they do not change, rather than live again.
  if (monitor != nullptr && unmaps && end_ != CallEnd::done) monitor->settle();
  const auto for_each_touched = [monitor](const AddressRange& part, auto call) {
    const SignalsBlocked blocked;
    if (monitor != nullptr) monitor->for_each_touched(part.start, part.end, call);
  };
  ledger.settle(
      entry_, range_, unmaps, end_,
      [&](const AddressRange& part, PageEvent event) {
        for_each_touched(part, [&](InvalidationSink& sink) {
          static_cast<void>(sink.apply(part.start, part.end, event));
        });
      },
      [&](const AddressRange& part) {
        for_each_touched(part,
                         [&](InvalidationSink& sink) { sink.mark_unmapped_dead(part.start, part.end); });
      });
  if (monitor != nullptr) monitor->for_each_sink([](InvalidationSink& sink) { sink.call_has_ended(); });
}

bool may_meet_regions(uint64_t start, uint64_t end) {
  const CallGuard guard;
  return guard.monitor != nullptr && guard.monitor->touches(start, end);
}

void drop_marks(uint64_t start, uint64_t end) {
  const AddressRange range{start, end};
  if (range.is_empty()) return;
  const CallGuard guard;
  if (guard.monitor == nullptr || !guard.monitor->touches(start, end)) return;
  const ErrnoKept kept;
  if (mark_and_pass(*guard.monitor, range,
                    [&](InvalidationSink& sink) { return sink.apply(start, end, PageEvent::drop); }))
    release_pins(*guard.monitor, range);
}

}  // namespace faultline::odp
