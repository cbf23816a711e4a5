// SPDX-License-Identifier: BSD-3-Clause
// A model of the kernel, the program's threads, an engine, a pager and the monitor around the real page map
// and the real ledger of calls (docs/invalidation.md). It executes one step of one actor at a time, chosen by
// a seed.
// Invariant: no store outside the mapping that the program registered, from the moment at which the kernel
// removes the mapping. For a call inside the C library, which no hook sees, from the moment at which the call
// returns.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "odp/invalidation/call_ledger.hpp"
#include "odp/regions/page_map.hpp"

namespace faultline::odp::test {

/// A guard that the model omits, to show that the search would detect it.
enum class Omission : uint8_t {
  none,
  marks,              ///< a call does not mark its pages
  wait_for_engine,    ///< a call neither waits for the engine's turn nor restarts its copy
  ticket,             ///< a copy does not check its ticket
  settle_by_kernel,   ///< a failed call revives pages without checking the kernel or its events
  overlap_on_revive,  ///< a call revives pages that another call still holds
  gate_before_read,   ///< the monitor reads events without stopping the engine
  publish_asks_monitor,
  register_outlasts_calls
};

struct ModelChoice {
  bool events = true;       ///< userfaultfd is available
  bool restartable = true;  ///< copies are restartable
  Omission omission = Omission::none;
};

class CallModel {
 public:
  CallModel(const ModelChoice& choice, uint64_t seed) : choice_(choice), random_(seed) {
    mapping_.fill(1);
    enroll();
    for (size_t page = 0; page < kPages; ++page) {
      pages_.apply(page, PageEvent::begin_fault);
      pages_.apply(page, PageEvent::publish_write);
    }
  }

  /// Runs until every call has been made and has ended. Returns an empty string, or a description of the
  /// failure.
  std::string run() {
    for (unsigned steps = 0; steps < kMostSteps; ++steps) {
      // The engine and the pager can always run, so an endless wait is reported as "no end".
      static_cast<void>(step(below(kActors)));
      if (!wrong_.empty()) return wrong_;
      if (is_over()) return {};
    }
    return "no end: a call or an event waits for ever";
  }
  [[nodiscard]] unsigned stores() const { return stores_; }
  [[nodiscard]] unsigned calls() const { return calls_made_; }

 private:
  static constexpr size_t kPages = 6;
  static constexpr unsigned kThreads = 3;            ///< of the program
  static constexpr unsigned kActors = kThreads + 8;  ///< the engine has four of the choices, the pager three
  static constexpr unsigned kCallsAThread = 4;
  static constexpr unsigned kMostSteps = 4'000;

  using Range = std::pair<size_t, size_t>;  ///< pages
  static AddressRange addresses(const Range& range) {
    return {(kFirst + range.first) << kPageShift, (kFirst + range.second) << kPageShift};
  }
  static constexpr uint64_t kFirst = 16;

  enum class Kind : uint8_t { unmap, unmap_in_library, map_over, advise, map_hole, register_again };
  enum class At : uint8_t { idle, begun, passing, in_kernel, awaits_event, returned, mapping_new };

  struct Call {
    Kind kind{};
    Range range{};
    At at = At::idle;
    CallLedger::Entry* entry = nullptr;
    uint64_t pass_turn = 0;  ///< the engine's turn that must have ended
    bool fails_after_unmapping = false;
    bool fails_at_once = false;
    [[nodiscard]] bool is_hooked() const { return kind != Kind::unmap_in_library && kind != Kind::map_hole; }
    [[nodiscard]] bool unmaps() const {
      return kind == Kind::unmap || kind == Kind::unmap_in_library || kind == Kind::map_over;
    }
  };
  /// A thread's call, and the calls of signal handlers that have interrupted it.
  struct Thread {
    std::vector<Call> calls;
    unsigned left = kCallsAThread;
  };
  struct Event {
    Range range;
    Thread* waiter = nullptr;  ///< released by the first read; then nullptr
    size_t depth = 0;          ///< its nesting depth within the thread's calls
    unsigned times = 1;        ///< number of reads
  };

  unsigned below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }
  bool one_in(unsigned bound) { return below(bound) == 0; }

  bool step(unsigned actor) {
    if (actor < kThreads) return step_thread(threads_[actor]);
    if (actor == kThreads) return step_monitor();
    return actor <= kThreads + 4 ? step_engine() : step_pager();
  }
  [[nodiscard]] bool is_over() const {
    return std::all_of(threads_.begin(), threads_.end(),
                       [](const Thread& thread) { return thread.left == 0 && thread.calls.empty(); }) &&
           events_.empty() && monitor_at_ == 0;
  }

  // The program.

  Range any_range() {
    const size_t first = below(kPages);
    return {first, first + 1 + below(static_cast<unsigned>(kPages - first))};
  }
  bool step_thread(Thread& thread) {
    if (thread.calls.empty()) {
      if (thread.left == 0) return false;
      --thread.left;
      return begin(thread);
    }
    // Occasionally a signal handler, whose calls end before the interrupted call continues.
    if (thread.calls.size() < 3 && thread.left != 0 && one_in(12)) {
      --thread.left;
      return begin(thread);
    }
    return go_on(thread);
  }
  bool begin(Thread& thread) {
    Call call;
    const bool in_library = choice_.events && one_in(4);
    switch (below(6)) {
      case 0:
      case 1:
        call.kind = in_library ? Kind::unmap_in_library : Kind::unmap;
        break;
      case 2:
        call.kind = Kind::map_over;
        call.fails_after_unmapping = one_in(3);
        call.fails_at_once = !call.fails_after_unmapping && one_in(4);
        break;
      case 3:
        call.kind = Kind::advise;
        break;
      case 4:
        call.kind = Kind::map_hole;
        break;
      default:
        // Signal handlers make no control calls of the library.
        call.kind = thread.calls.empty() ? Kind::register_again : Kind::advise;
        break;
    }
    call.range = any_range();
    call.at = At::begun;
    thread.calls.push_back(call);
    ++calls_made_;
    return true;
  }
  bool go_on(Thread& thread) {
    Call& call = thread.calls.back();
    switch (call.at) {
      case At::begun:
        return begin_call(thread, call);
      case At::passing:
        if (!has_passed(call)) return false;
        call.at = At::in_kernel;
        return true;
      case At::in_kernel:
        return in_kernel(thread, call);
      case At::awaits_event:
        return false;  // until the monitor reads the event
      case At::mapping_new:
        map(call.range);
        call.at = At::returned;
        return true;
      case At::returned:
        return end_call(thread, call);
      case At::idle:
        break;
    }
    return false;
  }
  bool begin_call(Thread& thread, Call& call) {
    if (call.kind == Kind::map_hole) {
      // mmap without MAP_FIXED: the kernel chooses a free address. If a call fails after it has unmapped, and
      // there are no events, only the state of the kernel right afterwards shows it.
      for (size_t page = call.range.first; page < call.range.second; ++page)
        if (mapping_[page] == 0 && (choice_.events || !is_in_failing_call(page)))
          mapping_[page] = next_mapping_++;
      thread.calls.pop_back();
      return true;
    }
    if (call.kind == Kind::register_again) {
      const bool mapped = std::all_of(mapping_.begin(), mapping_.end(), [](unsigned id) { return id != 0; });
      // A program registers only mapped memory.
      if (!mapped) {
        thread.calls.pop_back();
        return true;
      }
      if (choice_.omission != Omission::register_outlasts_calls &&
          (ledger_->has(addresses({0, kPages})) || has_calls()))
        return false;
      if (engine_at_ != EngineAt::idle) return false;  // retiring a region: the engine's turn must end first
      enroll();
      thread.calls.pop_back();
      return true;
    }
    if (!call.is_hooked()) {
      call.at = At::in_kernel;
      return true;
    }
    call.entry = ledger_->begin(addresses(call.range));
    if (choice_.omission != Omission::marks)
      apply(call.range, call.unmaps() ? PageEvent::doom : PageEvent::suspend);
    if (call.entry != nullptr) call.entry->note_marked(call.unmaps() ? PageEvent::doom : PageEvent::suspend);
    revoke();
    call.pass_turn = turn_ + 1;
    call.at = At::passing;
    if (choice_.omission == Omission::wait_for_engine) call.at = At::in_kernel;
    return true;
  }
  bool has_passed(const Call& call) {
    if (engine_at_ == EngineAt::idle || turn_ >= call.pass_turn) return true;
    if (!choice_.restartable) return false;
    restart();
    return true;
  }
  bool in_kernel(Thread& thread, Call& call) {
    if (call.kind == Kind::advise || call.fails_at_once) {
      call.at = At::returned;
      return true;
    }
    bool any = false;
    for (size_t page = call.range.first; page < call.range.second; ++page) {
      any |= mapping_[page] != 0;
      mapping_[page] = 0;
    }
    call.at = call.kind == Kind::map_over && !call.fails_after_unmapping ? At::mapping_new : At::returned;
    // mmap's new mapping exists before the event is read (linux, mmap_region).
    if (call.at == At::mapping_new) {
      map(call.range);
      call.at = At::returned;
    }
    if (choice_.events && any) {
      events_.push_back({call.range, &thread, thread.calls.size() - 1, one_in(8) ? 2U : 1U});
      call.at = At::awaits_event;
    }
    return true;
  }
  bool end_call(Thread& thread, Call& call) {
    if (!call.is_hooked()) {
      thread.calls.pop_back();
      return true;
    }
    const bool failed = call.fails_after_unmapping || call.fails_at_once;
    // Monitor::settle().
    if (call.unmaps() && failed && (monitor_at_ != 0 || !events_.empty())) return false;
    CallEnd end = failed ? CallEnd::failed : CallEnd::done;
    if (failed && choice_.omission == Omission::settle_by_kernel) end = CallEnd::stays;
    const auto apply_to = [this](const AddressRange& part, PageEvent event) { apply(pages_in(part), event); };
    const auto mark_unmapped_dead = [this](const AddressRange& part) {
      const Range range = pages_in(part);
      for (size_t page = range.first; page < range.second; ++page)
        if (mapping_[page] == 0) apply({page, page + 1}, PageEvent::bury);
    };
    if (choice_.omission == Omission::overlap_on_revive && !(call.unmaps() && !failed))
      apply(call.range, PageEvent::revive);
    ledger_->settle(call.entry, addresses(call.range), call.unmaps(), end, apply_to, mark_unmapped_dead);
    thread.calls.pop_back();
    return true;
  }
  void enroll() {
    pages_ = PageMap();
    static_cast<void>(pages_.allocate(kPages));
    faulting_ = false;
    registered_ = mapping_;
    published_ = mapping_;
  }
  void map(const Range& range) {
    for (size_t page = range.first; page < range.second; ++page) mapping_[page] = next_mapping_++;
  }
  template <typename Is>
  [[nodiscard]] bool is_in_call(size_t page, Is is) const {
    return std::any_of(threads_.begin(), threads_.end(), [&](const Thread& thread) {
      return std::any_of(thread.calls.begin(), thread.calls.end(), [&](const Call& call) {
        return is(call) && page >= call.range.first && page < call.range.second;
      });
    });
  }
  [[nodiscard]] bool is_in_library_call(size_t page) const {
    return is_in_call(page, [](const Call& call) { return call.kind == Kind::unmap_in_library; });
  }
  [[nodiscard]] bool is_in_failing_call(size_t page) const {
    return is_in_call(page, [](const Call& call) { return call.fails_after_unmapping; });
  }
  /// Userfault::has_calls(): a thread is between the change of a mapping and the end of its call.
  [[nodiscard]] bool has_calls() const { return !events_.empty() || monitor_at_ != 0; }
  static Range pages_in(const AddressRange& part) {
    return {std::max(part.start >> kPageShift, kFirst) - kFirst,
            std::min((part.end >> kPageShift) - kFirst, uint64_t{kPages})};
  }

  // The library.

  void apply(const Range& range, PageEvent event) {
    if (range.first < range.second) pages_.change_range(range.first, range.second - range.first, event);
  }
  void revoke() { ++revocations_; }
  void restart() {
    if (engine_at_ == EngineAt::in_copy) engine_at_ = EngineAt::turn;
  }

  enum class EngineAt : uint8_t { idle, turn, checked, in_copy };
  bool step_engine() {
    switch (engine_at_) {
      case EngineAt::idle:
        engine_at_ = EngineAt::turn;
        gated_ = gate_;
        ticket_ = revocations_;
        return true;
      case EngineAt::turn:
        if (one_in(4) || gated_) {
          engine_at_ = EngineAt::idle;
          ++turn_;
          return true;
        }
        target_ = below(kPages);
        if (ticket_ != revocations_) {  // retry_while_revoked()
          ticket_ = revocations_;
          gated_ = gate_;
          return true;
        }
        if (!allows(pages_.state(target_), true)) return true;
        engine_at_ = EngineAt::checked;
        return true;
      case EngineAt::checked:
        engine_at_ = EngineAt::in_copy;
        if (ticket_ != revocations_ && choice_.omission != Omission::ticket) engine_at_ = EngineAt::turn;
        return true;
      case EngineAt::in_copy:
        ++stores_;
        engine_at_ = EngineAt::turn;
        // A store into a hole is a fault that the copy catches. A call inside the C library takes effect as
        // soon as it has unmapped. Until its event is read, pages that were resident before may still receive
        // stores.
        if (mapping_[target_] != 0 && mapping_[target_] != registered_[target_] &&
            !(is_in_library_call(target_) && published_[target_] == registered_[target_]))
          wrong_ = "a store into another mapping, page " + std::to_string(target_);
        return true;
    }
    return false;
  }

  bool step_pager() {
    if (!faulting_) {
      fault_page_ = below(kPages);
      const AddressRange page = addresses({fault_page_, fault_page_ + 1});
      if (ledger_->has(page)) return true;
      const PageState state = pages_.state(fault_page_);
      if (state == PageState::dead || state == PageState::doomed || allows(state, true)) return true;
      pages_.apply(fault_page_, PageEvent::begin_fault);
      faulting_ = true;
      populated_ = false;
      return true;
    }
    if (!populated_) {
      if (mapping_[fault_page_] == 0) {
        if (pages_.state(fault_page_) == PageState::faulting) pages_.apply(fault_page_, PageEvent::drop);
        faulting_ = false;
        return true;
      }
      populated_ = true;
      populated_of_ = mapping_[fault_page_];
      return true;
    }
    if (choice_.omission != Omission::publish_asks_monitor && (monitor_at_ != 0 || !events_.empty()) &&
        pages_.state(fault_page_) == PageState::faulting)
      pages_.apply(fault_page_, PageEvent::drop);
    if (pages_.apply(fault_page_, PageEvent::publish_write) == PageState::faulting)
      published_[fault_page_] = populated_of_;
    faulting_ = false;
    return true;
  }

  bool step_monitor() {
    switch (monitor_at_) {
      case 0:
        if (events_.empty()) return false;
        monitor_at_ = 1;
        if (choice_.omission == Omission::gate_before_read) {
          monitor_at_ = 2;
          return true;
        }
        gate_ = true;
        revoke();
        monitor_pass_turn_ = turn_ + 1;
        return true;
      case 1:
        if (engine_at_ != EngineAt::idle && turn_ < monitor_pass_turn_) {
          if (!choice_.restartable) return false;
          restart();
        }
        monitor_at_ = 2;
        return true;
      case 2: {
        // The read releases the calling thread.
        taken_ = events_.front();
        events_.front().waiter = nullptr;
        if (--events_.front().times == 0) events_.erase(events_.begin());
        if (taken_.waiter != nullptr) taken_.waiter->calls[taken_.depth].at = At::returned;
        monitor_at_ = 3;
        return true;
      }
      default:
        ledger_->note_unmapped(addresses(taken_.range));
        if (!ledger_->already_marks(PageEvent::kill, addresses(taken_.range)))
          apply(taken_.range, PageEvent::kill);
        gate_ = false;
        monitor_at_ = 0;
        return true;
    }
  }

  const ModelChoice choice_;
  std::mt19937_64 random_;
  std::string wrong_;

  std::array<unsigned, kPages> mapping_{};     ///< identifies the mapping in the kernel; 0: none
  std::array<unsigned, kPages> registered_{};  ///< the mapping that the region covers
  unsigned next_mapping_ = 2;
  std::vector<Event> events_;
  std::array<Thread, kThreads> threads_;
  unsigned calls_made_ = 0;

  PageMap pages_;
  std::unique_ptr<CallLedger> ledger_ = std::make_unique<CallLedger>();
  uint64_t revocations_ = 1;
  bool gate_ = false;

  EngineAt engine_at_ = EngineAt::idle;
  uint64_t turn_ = 0;
  uint64_t ticket_ = 0;
  bool gated_ = false;
  size_t target_ = 0;
  unsigned stores_ = 0;

  bool faulting_ = false;
  bool populated_ = false;
  size_t fault_page_ = 0;
  unsigned populated_of_ = 0;
  std::array<unsigned, kPages> published_{};  ///< the mapping in which each page became resident

  unsigned monitor_at_ = 0;
  uint64_t monitor_pass_turn_ = 0;
  Event taken_{};
};

}  // namespace faultline::odp::test
