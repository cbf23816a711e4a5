// SPDX-License-Identifier: BSD-3-Clause
#include "odp/program_call.hpp"

#include <atomic>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "odp/address_space.hpp"
#include "odp/mapping_list.hpp"

namespace faultline::odp {
namespace {

constinit std::atomic<uint32_t> generation{0};
constinit std::atomic<bool> forks_are_watched{false};

/// Held from before a fork until after it, by the thread that forks.
alignas(ProgramCall) thread_local std::array<std::byte, sizeof(ProgramCall)> fork_call;
thread_local bool fork_is_held = false;

void before_fork() {
  new (&fork_call) ProgramCall(0, ~uint64_t{0}, PageEvent::make_copy_on_write);
  fork_is_held = true;
}

void after_fork_in_parent() {
  if (!fork_is_held) return;
  fork_is_held = false;
  std::launder(reinterpret_cast<ProgramCall*>(&fork_call))->~ProgramCall();
}

void after_fork_in_child() {
  // Nothing of the parent's is let go of or looked at: its threads, and the locks that they held, are not
  // here.
  fork_is_held = false;
  generation.fetch_add(1, std::memory_order_relaxed);
  AddressSpaceCall::forget_in_child();
  InvalidationMonitor::forget_in_child();
}

}  // namespace

ProgramCall::ProgramCall(uint64_t start, uint64_t end, PageEvent change)
    : start_(start), end_(end), kills_(change == PageEvent::kill) {
  InvalidationMonitor* const monitor = guard_.monitor;
  if (monitor == nullptr || start >= end) return;
  std::array<uint64_t, InvalidationMonitor::kMaxSinks> tokens;
  monitor->for_each_touched(start, end, [&](InvalidationSink& sink) {
    tokens[stopped_count_] = sink.quiescence().raise_gate();
    stopped_[stopped_count_++] = &sink;
  });
  for (size_t i = 0; i < stopped_count_; ++i) stopped_[i]->quiescence().wait_for(tokens[i]);
  for (size_t i = 0; i < stopped_count_; ++i) {
    stopped_[i]->apply(start, end, kills_ ? PageEvent::doom : change);
    // A pinned page would stay where it is whatever the program wants; after a fork it must stay the
    // parent's.
    if (change != PageEvent::make_copy_on_write) stopped_[i]->release_pins(start, end);
  }
}

ProgramCall::~ProgramCall() {
  // The call's own event (MREMAP_DONTUNMAP's is that of a move) was read before it returned, and is perhaps
  // still to be applied: to the doomed, which it leaves alone, not to what lives again.
  if (last_ == PageEvent::revive && stopped_count_ != 0) guard_.monitor->settle();
  for (size_t i = 0; kills_ && i < stopped_count_; ++i) stopped_[i]->apply(start_, end_, last_);
  for (size_t i = 0; i < stopped_count_; ++i) stopped_[i]->quiescence().lower_gate();
}

uint64_t end_of_mapping(uint64_t address) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  MappingFacts facts;
  uint64_t end = address;
  if (maps >= 0 && find_mapping(maps, address, facts)) {
    // Parts of it may have been protected otherwise, and are mappings of their own now. What lies behind it
    // may be the same segment, attached once more: its offset begins at nothing again.
    const uint64_t inode = facts.inode;
    end = facts.end;
    while (find_mapping(maps, end, facts) && facts.start == end && facts.inode == inode &&
           facts.offset_bytes == end - address)
      end = facts.end;
  }
  if (maps >= 0) close(maps);
  return end;
}

void watch_forks() {
  if (!forks_are_watched.exchange(true))
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

uint32_t fork_generation() {
  // Who asks wants to know of forks from now on, also where there is no domain yet.
  if (!forks_are_watched.load(std::memory_order_relaxed)) watch_forks();
  return generation.load(std::memory_order_relaxed);
}

}  // namespace faultline::odp
