// SPDX-License-Identifier: BSD-3-Clause
#include "odp/registration_guard.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include <spdlog/fmt/fmt.h>

#include "odp/guards.hpp"
#include "odp/invalidation/invalidation_monitor.hpp"
#include "odp/mappings/mapping_list.hpp"
#include "odp/mappings/own_mappings.hpp"
#include "odp/pins/pin_table.hpp"
#include "odp/regions/region.hpp"
#include "stack/base/log.hpp"

namespace faultline::odp {
namespace {

constinit std::atomic<bool> logged_refusal{false};
constinit std::atomic<bool> logged_unpinned{false};

int refuse(const char* memory, const char* why) {
  if (!logged_refusal.exchange(true))
    log().error(
        "on-demand registration of {} fails (ENOTSUP): the library's hooks do not see the program's calls, "
        "and "
        "{}: start the program with faultline-run or LD_PRELOAD, or set [odp] allow_unguarded = true",
        memory, why);
  return ENOTSUP;
}

/// True if the range holds a System V segment. shmdt(2) removes such memory, and userfaultfd has no event
/// for it.
bool holds_segment(uint64_t start, uint64_t end) {
  bool found = false;
  OwnMappings().for_each_file_from(start, [&](const MappingFacts& facts) {
    if (facts.start >= end) return false;
    found = facts.is_segment;
    return !found;
  });
  return found;
}

std::string reason_of(const UnpinnedClassic& facts) {
  if (facts.error == EFAULT || facts.error == EOPNOTSUPP)
    return "memory of this kind cannot be pinned (a shared mapping of a file, or not writable)";
  if (facts.error == EMFILE || facts.error == ENFILE) return "io_uring has no descriptor: raise ulimit -n";
  if (facts.error != ENOMEM)
    return fmt::format("io_uring refuses ({}): allow it (seccomp profile, sysctl kernel.io_uring_disabled)",
                       std::strerror(facts.error));
  const uint64_t limit_bytes = lock_limit_bytes();
  if (facts.budget_bytes == facts.wanted_bytes)
    return fmt::format(
        "the pin budget is {} bytes: raise [odp] pin_budget_mib, or RLIMIT_MEMLOCK (ulimit -l) "
        "where other processes of this user lock memory",
        facts.budget_bytes);
  return fmt::format(
      "RLIMIT_MEMLOCK is {} bytes for all processes of this user, of which at most {} are for pins: raise "
      "ulimit -l",
      limit_bytes, facts.budget_bytes);
}

void log_unpinned(const UnpinnedClassic& facts, spdlog::level::level_enum level) {
  try {
    log().log(level, "a classic memory region of {} bytes {}: {}", facts.length_bytes,
              facts.refuse ? "fails (ENOMEM, [odp] unpinned_classic = \"refuse\")"
                           : "is not pinned, and the kernel may page it out",
              reason_of(facts));
  } catch (const std::bad_alloc&) {
    // Not propagated: the caller has a half-made region, and a counter records it.
  }
}

}  // namespace

UnmapGuard::UnmapGuard(const DomainConfig& config, const InvalidationMonitor& monitor)
    : needs_events_(!config.allow_unguarded && !are_hooks_bound()), level_(monitor.level()) {}

int UnmapGuard::check_implicit() const {
  if (!needs_events_ || level_ != UserfaultLevel::none) return 0;
  return refuse("the whole address space", "there is no userfaultfd");
}

int UnmapGuard::check_range(uint64_t start, uint64_t end) const {
  if (!needs_events_) return 0;
  if (level_ == UserfaultLevel::none) return refuse("memory", "there is no userfaultfd");
  if (holds_segment(start, end)) return refuse("System V shared memory", "userfaultfd does not report shmdt");
  return 0;
}

int UnmapGuard::check_watched(const Region& region, int watch_error) const {
  if (!needs_events_ || watch_error == 0) return 0;
  // A hole, which is watched once it is filled.
  if (watch_error == EINVAL && level_ == UserfaultLevel::full) return 0;
  return refuse(region.is_paged_by_program.load(std::memory_order_relaxed)
                    ? "memory of the program's own userfaultfd"
                    : "this kind of memory",
                "userfaultfd cannot watch it");
}

int judge_unpinned(const UnpinnedClassic& facts) {
  const bool is_known = note_unpinned_classic(facts.error) && !facts.refuse;
  if (!logged_unpinned.exchange(true))
    log_unpinned(facts, is_known ? spdlog::level::info : spdlog::level::warn);
  return facts.refuse ? ENOMEM : 0;
}

void log_stuck_pins(int error) {
  if (error == 0) return;
  log().warn(
      "the kernel refuses to release pins ({}): this memory stays pinned until the process ends; a sandbox "
      "must not refuse io_uring_register after the start",
      std::strerror(error));
}

}  // namespace faultline::odp
