// SPDX-License-Identifier: BSD-3-Clause
// The end of a device and of its process: what has been sent leaves before.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <mutex>
#include <thread>

#include <sched.h>

#include "pmd_glue/device/progress_thread.hpp"
#include "pmd_glue/device/running_device.hpp"
#include "pmd_glue/eal/eal.hpp"
#include "stack/base/clock.hpp"

namespace faultline::glue {
namespace {

constexpr TimeNs kSentLingerNs = 20'000'000;
constexpr TimeNs kHeldFramesNs = 1'000'000'000;
constexpr TimeNs kLastTurnsNs = 100'000'000;
constexpr TimeNs kTurnOfOthersNs = 20'000'000;

}  // namespace

void RunningDevice::shut_down() {
  if (is_of_parent_process()) return;
  withdraw_counters();
  const auto is_ours = [](CoreUnit& unit) { return unit.engine->turns().is_held_by_caller(); };
  if (std::any_of(core_units_.begin(), core_units_.end(), is_ours)) return abandon();
  std::call_once(shut_down_once_, [this] {
    if (!core_units_.empty()) ProgressThread::instance().remove(*this);
    for (CoreUnit& unit : core_units_)
      if (unit.thread != nullptr) unit.thread->stop();
    drain_engines();
    for (CoreUnit& unit : core_units_) {
      // The lock is held only to publish the state: closing a memif port takes the turn locks itself
      // (memif_gate.hpp).
      unit.engine->turns().lock();
      unit.engine->use_port(false);
      static_cast<void>(progress_.note(ProgressEvent::close));
      unit.engine->turns().unlock();
    }
    port_.reset();
    capture_.reset();
    if (publisher_ != nullptr) publisher_->segment().remove_file();
  });
}

void RunningDevice::abandon() {
  if (is_of_parent_process()) return;
  const TimeNs start = monotonic_ns();
  // Posted work is transmitted in a turn of the progress thread or of the core's own thread.
  rest();
  for (CoreUnit& unit : core_units_) {
    if (unit.engine->turns().is_held_by_caller()) continue;
    while (unit.engine->last_turn() < start && monotonic_ns() < start + kTurnOfOthersNs) {
      const timespec pause{.tv_sec = 0, .tv_nsec = 50'000};
      nanosleep(&pause, nullptr);
    }
  }
  for (CoreUnit& unit : core_units_)
    if (unit.thread != nullptr) unit.thread->abandon();
  if (capture_ != nullptr) Capture::await_writer();
  if (publisher_ != nullptr) publisher_->segment().remove_file();
}

// A NIC transmits queued frames even after the program ends. Here, frames that wait for the engine's next
// turn, or that a link model holds, would be lost with the engine. So they are transmitted first. Frames in
// memif's ring are lost with the ring, unless the other end drains it as this library does (memif_gate.hpp).
// So the peer gets a short time to take them.
void RunningDevice::drain_engines() {
  const bool has_links = wire_port_ != nullptr && wire_port_->links() != 0;
  if (core_units_.empty() || (!port_->link_up() && !has_links)) return;
  const TimeNs now = monotonic_ns();
  const TimeNs latest = now + kHeldFramesNs;
  bool sent_lately = false;
  for (CoreUnit& unit : core_units_) {
    PollEngine& engine = *unit.engine;
    do {
      engine.turns().lock();
      register_this_thread();
      unit.take_turn();
      engine.turns().unlock();
      // The peer has to take frames before a full ring takes more.
      sched_yield();
    } while (engine.core().next_deadline() <= engine.last_turn() && monotonic_ns() < now + kLastTurnsNs);
    while (engine.holds_frames_to_send() && monotonic_ns() < latest) {
      engine.turns().lock();
      register_this_thread();
      engine.release_due_frames(monotonic_ns());
      engine.turns().unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    sent_lately |= monotonic_ns() - engine.last_sent() < kSentLingerNs;
  }
  await_kept_frames();
  if (sent_lately && port_->link_holds_frames() && attachment_ == nullptr)
    std::this_thread::sleep_for(std::chrono::nanoseconds(kSentLingerNs));
}

// Frames that a link keeps have left as far as the program knows: their work requests have completed. A peer
// that takes none for kKeptNs loses them; the limit is for one that takes them one by one.
void RunningDevice::await_kept_frames() {
  if (wire_port_ == nullptr || core_units_.empty()) return;
  CoreUnit& unit = core_units_.front();  // it has the links
  const TimeNs latest = monotonic_ns() + DirectLink::kKeptNs;
  while (monotonic_ns() < latest) {
    if (unit.engine->turns().try_lock()) {
      const bool keeps = !progress_.is_closed() && wire_port_->keeps_frames();
      if (keeps) unit.take_turn();
      unit.engine->turns().unlock();
      if (!keeps) return;
    } else if (has_own_threads() && !wire_port_->keeps_frames()) {
      return;  // its thread holds the lock from turn to turn
    }
    const timespec pause{.tv_sec = 0, .tv_nsec = 50'000};
    nanosleep(&pause, nullptr);
  }
}

void RunningDevice::run_last_turns() {
  if (is_of_parent_process() || progress_.is_closed()) return;
  if (!has_own_threads()) take_last_turns();
  await_kept_frames();
}

// As drain_engines(), but not by call() or lock(), which wait without a limit: the process ends.
void RunningDevice::take_last_turns() {
  for (CoreUnit& unit : core_units_) {
    const TimeNs latest = monotonic_ns() + kLastTurnsNs;
    while (take_last_turn(unit) && monotonic_ns() < latest) sched_yield();
  }
}

/// Returns true if the core has more to do at once: frames that a full port has not taken.
bool RunningDevice::take_last_turn(CoreUnit& unit) {
  const TimeNs latest = monotonic_ns() + kTurnOfOthersNs;
  PollEngine& engine = *unit.engine;
  bool ours = engine.turns().try_lock();
  for (; !ours && monotonic_ns() < latest; ours = engine.turns().try_lock()) sched_yield();
  if (!ours) return false;
  const bool is_open = !progress_.is_closed();
  if (is_open) unit.take_turn();
  const bool has_more = is_open && engine.core().next_deadline() <= engine.last_turn();
  engine.turns().unlock();
  return has_more;
}

}  // namespace faultline::glue
