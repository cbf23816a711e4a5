// SPDX-License-Identifier: BSD-3-Clause
#include "odp/guards.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include "odp/copy/restartable_copy.hpp"
#include "odp/mappings/own_mappings.hpp"
#include "odp/pins/pin_slots.hpp"
#include "odp/pins/pin_table.hpp"
#include "stack/base/free_descriptors.hpp"
#include "stack/base/log.hpp"
#include "stack/base/process/fork_generation.hpp"

namespace faultline::odp {
namespace {

constinit std::atomic<const HookedNames*> hooks{nullptr};

// Facts of a start, each valid only in the process that recorded it: a forked child has no monitor yet.
constinit std::atomic<uint32_t> started_generation{UINT32_MAX};
constinit std::atomic<UserfaultLevel> started_level{UserfaultLevel::none};
constinit std::atomic<UserfaultLevel> started_wanted{UserfaultLevel::full};
constinit std::atomic<int> started_error{0};
constinit std::atomic<uint64_t> started_budget_bytes{0};
constinit std::atomic<bool> started_unguarded{false};

constinit std::atomic<bool> classic_unpinned{false};
constinit std::atomic<bool> logged{false};
constinit std::atomic<bool> logged_no_pins{false};
constinit std::atomic<bool> logged_few_descriptors{false};

const char* text_of(int error) {
  const char* const text = strerrordesc_np(error);
  return text != nullptr ? text : "unknown error";
}

bool has_started() {
  return started_generation.load(std::memory_order_acquire) == fork_generation();
}

template <typename... Arguments>
void set(Guard& guard, const char* name, GuardState state, int error, fmt::format_string<Arguments...> form,
         Arguments&&... arguments) {
  guard.name = name;
  guard.state = state;
  guard.error = error;
  const auto end = fmt::format_to_n(guard.text.begin(), guard.text.size() - 1, form,
                                    std::forward<Arguments>(arguments)...);
  *end.out = '\0';
}

/// Returns the file name, without folders, of the object that holds an address.
std::string_view object_of(const void* address) {
  Dl_info facts{};
  if (address == nullptr || dladdr(address, &facts) == 0 || facts.dli_fname == nullptr) return "nobody";
  const std::string_view path(facts.dli_fname);
  return path.substr(path.rfind('/') + 1);
}

const void* base_of(const void* address) {
  Dl_info facts{};
  return address != nullptr && dladdr(address, &facts) != 0 ? facts.dli_fbase : nullptr;
}

struct Binding {
  bool unmapping = true;  ///< of the first kUnmappingNames
  bool all = true;
  const char* first_other = nullptr;    ///< the first name that is not ours
  const void* other_address = nullptr;  ///< its definition
};

/// Resolves the names as the program's own references are: in the order of the program's global scope.
/// RTLD_DEFAULT is unsuitable: it searches from the calling object, and after RTLD_DEEPBIND finds our own
/// names first.
Binding find_binding(std::span<const char* const> names, const void* own_base) {
  Binding binding;
  void* const program = dlopen(nullptr, RTLD_LAZY);
  for (size_t i = 0; i < names.size(); ++i) {
    const void* const found = program == nullptr ? nullptr : dlsym(program, names[i]);
    if (found != nullptr && base_of(found) == own_base) continue;
    if (binding.all) {
      binding.first_other = names[i];
      binding.other_address = found;
    }
    binding.all = false;
    if (i < kUnmappingNames) binding.unmapping = false;
  }
  if (program != nullptr) dlclose(program);
  return binding;
}

Binding binding_of(std::span<const char* const> names) {
  const HookedNames* const own = hooks.load(std::memory_order_acquire);
  if (own == nullptr || names.empty()) return {.unmapping = false, .all = false};
  return find_binding(names, base_of(own));
}

constexpr const char* kStartAdvice = "start the program with faultline-run or LD_PRELOAD";

void find_memory_hooks(Guard& guard) {
  constexpr const char* kName = "memory hooks";
  guard.lost = "the program's own unmappings are not seen before the kernel";
  const HookedNames* const own = hooks.load(std::memory_order_acquire);
  if (own == nullptr)
    return set(
        guard, kName, GuardState::missing, 0,
        "this program is linked without the library's hooks: of its own calls munmap, mmap, mremap and "
        "madvise are reported by userfaultfd alone, shmdt by nothing");
  const Binding binding = binding_of(own->memory);
  if (binding.all)
    return set(guard, kName, GuardState::works, 0,
               "the program's munmap, mmap, mremap, madvise, mprotect, shmdt come to this library first");
  if (binding.unmapping)
    return set(guard, kName, GuardState::limited, 0,
               "the program's {} is that of {}: its calls are not seen before the kernel; {}",
               binding.first_other, object_of(binding.other_address), kStartAdvice);
  set(guard, kName, GuardState::missing, 0,
      "the program's {} is that of {}, which comes before this library (opened late by dlopen, or linked "
      "behind): calls of the program itself are reported by userfaultfd alone, shmdt by nothing; {}",
      binding.first_other, object_of(binding.other_address), kStartAdvice);
}

void find_signal_hooks(Guard& guard) {
  constexpr const char* kName = "signal hooks";
  guard.lost = "a later SIGSEGV handler takes the library's faults";
  const HookedNames* const own = hooks.load(std::memory_order_acquire);
  if (own != nullptr) {
    const Binding binding = binding_of(own->signals);
    if (binding.all)
      return set(guard, kName, GuardState::works, 0,
                 "the program's sigaction and signal come to this library");
    return set(guard, kName, GuardState::missing, 0,
               "the program's {} is that of {}: a SIGSEGV or SIGBUS handler that the program installs later "
               "stands before the library's until memory is registered again; {}",
               binding.first_other, object_of(binding.other_address), kStartAdvice);
  }
  set(guard, kName, GuardState::missing, 0,
      "this program is linked without the library's hooks: a SIGSEGV or SIGBUS handler that the program "
      "installs later stands before the library's until memory is registered again");
  guard.is_worth_a_warning = false;  // the line on memory hooks covers it
}

struct Watching {
  UserfaultLevel level = UserfaultLevel::none;
  int error = 0;
  bool by_configuration = false;
  bool allow_unguarded = false;
};

Watching find_watching() {
  if (has_started()) {
    const UserfaultLevel level = started_level.load(std::memory_order_relaxed);
    const bool by_configuration = level >= started_wanted.load(std::memory_order_relaxed);
    return {level, by_configuration ? 0 : started_error.load(std::memory_order_relaxed), by_configuration,
            started_unguarded.load(std::memory_order_relaxed)};
  }
  Userfault trial;
  const int error = trial.open(UserfaultLevel::full);
  return {trial.level(), error, false, false};
}

void find_userfaultfd(Guard& guard, bool hooked) {
  constexpr const char* kName = "userfaultfd";
  guard.lost = "unmappings inside the C library are not seen";
  const Watching watching = find_watching();
  const bool is_short = watching.level != UserfaultLevel::full;
  guard.is_worth_a_warning = !watching.by_configuration;
  if (!is_short)
    return set(guard, kName, GuardState::works, 0,
               "unmappings are reported by events, those inside the C library (free, realloc) too");
  const bool has_some = watching.level == UserfaultLevel::without_files;
  const auto state = has_some ? GuardState::limited : GuardState::missing;
  const char* const why = watching.by_configuration ? "the configuration turns it off"
                          : has_some                ? "the kernel has no WP_ASYNC (Linux 6.7)"
                                                    : text_of(watching.error);
  if (hooked)
    return set(
        guard, kName, state, watching.error,
        "{} ({}): unmappings {}are not seen inside the C library (free, realloc, the end of a thread): "
        "where another mapping takes their place it may be written until the region is deregistered{}",
        has_some ? "mappings of files are not watched" : "no userfaultfd", why, has_some ? "of files " : "",
        has_some || watching.by_configuration ? "" : "; allow userfaultfd (seccomp profile)");
  if (watching.allow_unguarded)
    return set(guard, kName, state, watching.error,
               "{} ({}), and no hooks: no unmapping {}is seen before its region is deregistered, and memory "
               "that is mapped there later may be written ([odp] allow_unguarded = true)",
               has_some ? "mappings of files are not watched" : "no userfaultfd", why,
               has_some ? "of files " : "");
  set(guard, kName, state, watching.error,
      "{} ({}), and no hooks: on-demand registration {}fails with ENOTSUP; {}, or allow userfaultfd",
      has_some ? "mappings of files are not watched" : "no userfaultfd", why, has_some ? "of files " : "",
      kStartAdvice);
}

void find_pins(Guard& guard) {
  constexpr const char* kName = "pins";
  guard.lost = "registered memory, classic regions too, may be paged out";
  if (has_started() && started_budget_bytes.load(std::memory_order_relaxed) == 0)
    return set(guard, kName, GuardState::limited, 0,
               "the pin budget is 0 bytes ([odp] pin_budget_mib, or RLIMIT_MEMLOCK): the kernel may page "
               "registered memory out at any time, and classic regions are not pinned");
  const int error = PinSlots::try_once();
  const char* const advice =
      error == ENOMEM ? "raise RLIMIT_MEMLOCK (ulimit -l), which is one for all processes of a user"
      : error == EMFILE || error == ENFILE ? "raise ulimit -n"
      : error == EINVAL                    ? "Linux 5.13 or later has what it takes"
                        : "allow io_uring (seccomp profile, sysctl kernel.io_uring_disabled)";
  if (error != 0)
    return set(guard, kName, GuardState::missing, error,
               "io_uring pins nothing ({}): the kernel may page registered memory out at any time, and "
               "classic regions are not pinned; {}",
               text_of(error), advice);
  if (classic_unpinned.load(std::memory_order_relaxed))
    return set(
        guard, kName, GuardState::limited, 0,
        "io_uring pins memory, but a classic region of this process is not pinned (odp.pin_fallbacks)");
  set(guard, kName, GuardState::works, 0, "io_uring pins memory");
}

void find_process_map(Guard& guard) {
  constexpr const char* kName = "process map";
  guard.lost = "kinds of mappings are not known";
  errno = 0;
  const OwnMappings maps;
  const int error = maps.is_open() ? 0 : errno;
  if (maps.is_open()) return set(guard, kName, GuardState::works, 0, "/proc/self/maps can be read");
  set(guard, kName, GuardState::missing, error,
      "/proc/self/maps cannot be opened ({}): the kind of a faulting page is not known, and shmdt of a "
      "segment whose size is not known marks all that is mapped behind it; mount /proc",
      text_of(error));
}

void find_descriptors(Guard& guard) {
  constexpr const char* kName = "descriptors";
  guard.lost = "the next pin, userfaultfd or device may fail";
  // Twice what a device on a wire needs.
  constexpr size_t kEnough = 40;
  const rlim_t limit = descriptor_limit();
  const size_t free_count = count_free_descriptors(kEnough);
  if (free_count == kEnough)
    return set(guard, kName, GuardState::works, 0, "{} or more are free (RLIMIT_NOFILE {})", kEnough, limit);
  set(guard, kName, free_count == 0 ? GuardState::missing : GuardState::limited, free_count == 0 ? EMFILE : 0,
      "{} are free (RLIMIT_NOFILE {}): pins, userfaultfd and /proc/self/maps need some; raise ulimit -n",
      free_count, limit);
}

void find_lock_limit(Guard& guard) {
  constexpr const char* kName = "memlock";
  guard.lost = "few pages are pinned";
  guard.is_worth_a_warning = false;  // most processes have a limit; the guard of the pins warns
  const uint64_t limit_bytes = lock_limit_bytes();
  if (limit_bytes == UINT64_MAX && !has_started())
    return set(guard, kName, GuardState::works, 0, "no limit to locked memory binds this process");
  const uint64_t budget_bytes =
      has_started() ? started_budget_bytes.load(std::memory_order_relaxed) : effective_pin_budget(UINT64_MAX);
  if (limit_bytes == UINT64_MAX)
    return set(guard, kName, GuardState::works, 0,
               "no limit to locked memory binds this process; the pin budget is {} bytes", budget_bytes);
  set(guard, kName, GuardState::limited, 0,
      "RLIMIT_MEMLOCK is {} bytes for all processes of this user: the pin budget is {} bytes; raise ulimit "
      "-l "
      "to pin more",
      limit_bytes, budget_bytes);
}

void find_restartable_copies(Guard& guard) {
  constexpr const char* kName = "restartable copies";
  guard.lost = "calls that take registered memory away wait for the engines";
  prepare_restartable_copies();
  if (has_restartable_copies())
    return set(
        guard, kName, GuardState::works, 0,
        "a call of the program that takes memory away restarts the engines' copies (rseq, membarrier)");
  set(guard, kName, GuardState::missing, 0,
      "no rseq (glibc before 2.35) or no membarrier (Linux before 5.10, seccomp profile): a call of the "
      "program "
      "that takes registered memory away waits until each engine has ended its turn");
}

}  // namespace

void announce_hooks(const HookedNames& names) noexcept {
  hooks.store(&names, std::memory_order_release);
}

bool are_hooks_bound() noexcept {
  const HookedNames* const own = hooks.load(std::memory_order_acquire);
  return own != nullptr && binding_of(own->memory).unmapping;
}

void note_start(const StartFacts& facts) noexcept {
  started_level.store(facts.level, std::memory_order_relaxed);
  started_wanted.store(facts.wanted, std::memory_order_relaxed);
  started_error.store(facts.userfault_error, std::memory_order_relaxed);
  started_budget_bytes.store(facts.pin_budget_bytes, std::memory_order_relaxed);
  started_unguarded.store(facts.allow_unguarded, std::memory_order_relaxed);
  started_generation.store(fork_generation(), std::memory_order_release);
}

bool note_unpinned_classic(int error) noexcept {
  classic_unpinned.store(true, std::memory_order_relaxed);
  if (logged_no_pins.load(std::memory_order_relaxed)) return true;
  return (error == EMFILE || error == ENFILE) && logged_few_descriptors.load(std::memory_order_relaxed);
}

namespace {

void find_all(GuardList& list) {
  const auto next = [&list]() -> Guard& { return list.guards[list.count++]; };
  find_memory_hooks(next());
  const bool hooked = list.guards[0].state != GuardState::missing;
  find_signal_hooks(next());
  find_userfaultfd(next(), hooked);
  find_pins(next());
  find_process_map(next());
  find_descriptors(next());
  find_lock_limit(next());
  find_restartable_copies(next());
}

const char* phrase_of(const Guard& guard) {
  return guard.state == GuardState::missing ? "is missing" : "is limited";
}

void log_one(spdlog::logger& logger, spdlog::level::level_enum level, const Guard& guard) {
  logger.log(level, "guard \"{}\" {}: {}", guard.name, phrase_of(guard), guard.text.data());
}

/// One line for several guards: a container lacks some at once, and each has a line in `faultline doctor`.
std::string summary_of(std::span<const Guard* const> guards) {
  std::string names;
  std::string lost;
  for (const Guard* const guard : guards) {
    names += fmt::format("{}guard \"{}\" {}", names.empty() ? "" : ", ", guard->name, phrase_of(*guard));
    if (guard->error != 0) names += fmt::format(" ({})", text_of(guard->error));
    lost += fmt::format("{}{}", lost.empty() ? "" : "; ", guard->lost);
  }
  return fmt::format("{}: {}; to mend them, see \"faultline doctor\"", names, lost);
}

}  // namespace

GuardList query_guards() noexcept {
  GuardList list;
  const int error = errno;
  try {
    find_all(list);
  } catch (const std::exception&) {
    // Memory is short: lists the guards found so far.
  }
  errno = error;
  return list;
}

void log_guards_once() {
  spdlog::logger& logger = log();
  if (logged.exchange(true)) return;
  const GuardList list = query_guards();
  std::vector<const Guard*> weak;
  for (size_t i = 0; i < list.count; ++i) {
    const Guard& guard = list.guards[i];
    if (guard.state == GuardState::works) continue;
    if (guard.is_worth_a_warning)
      weak.push_back(&guard);
    else
      log_one(logger, spdlog::level::info, guard);
  }
  const bool is_logged = logger.should_log(spdlog::level::warn);
  for (const Guard* const guard : weak) {
    log_one(logger, weak.size() == 1 ? spdlog::level::warn : spdlog::level::info, *guard);
    const std::string_view name = guard->name;
    if (name == "pins" && guard->state == GuardState::missing)
      logged_no_pins.store(is_logged, std::memory_order_relaxed);
    if (name == "descriptors") logged_few_descriptors.store(is_logged, std::memory_order_relaxed);
  }
  if (weak.size() > 1) logger.warn("{}", summary_of(weak));
}

}  // namespace faultline::odp
