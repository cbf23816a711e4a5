// SPDX-License-Identifier: BSD-3-Clause
// Which guards of registered memory work in this process. A guard is what the library needs of its place in
// the process or of the kernel so that a promise of docs/on-demand-paging.md holds. Containers, sandboxes,
// small limits and a late dlopen take guards away; nothing is taken for granted, each is tried.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "odp/mappings/userfault.hpp"

namespace faultline::odp {

enum class GuardState : uint8_t { missing, limited, works };

struct Guard {
  const char* name = "";  ///< static storage
  GuardState state = GuardState::missing;
  int error = 0;                   ///< the errno of a refusal, or 0
  std::array<char, 400> text{};    ///< one line: what is lost and what to do, or how it works
  bool is_worth_a_warning = true;  ///< where it does not work: not for what most processes lack
};

struct GuardList {
  std::array<Guard, 8> guards;
  size_t count = 0;
};

/// Tries all guards now. Allocates and makes system calls: not on the data path. Throws nothing.
[[nodiscard]] GuardList query_guards() noexcept;

/// One line to the log for each guard that does not work, once a process. Throws std::bad_alloc where the
/// logger cannot be made; once it returned, later lines do not throw.
void log_guards_once();

/// The C library's names that this library defines, by what they guard.
struct HookedNames {
  std::span<const char* const> memory;   ///< what takes memory away; the first three are what unmaps
  std::span<const char* const> signals;  ///< what installs handlers
};
inline constexpr size_t kUnmappingNames = 3;
/// From the file that is linked where the hooks are, before main: without it this program has no hooks.
void announce_hooks(const HookedNames& names) noexcept;
/// Whether a call of the program that unmaps (munmap, mmap, mremap) comes to this library's hooks. Not so
/// where the library was opened after the C library: the program's names are bound by then.
[[nodiscard]] bool are_hooks_bound() noexcept;

/// What a domain found at its start; the guards report that rather than what a second try would find.
struct StartFacts {
  UserfaultLevel level = UserfaultLevel::none;
  UserfaultLevel wanted = UserfaultLevel::full;  ///< by configuration
  int userfault_error = 0;
  uint64_t pin_budget_bytes = 0;
  bool allow_unguarded = false;
};
void note_start(const StartFacts& facts) noexcept;
/// A classic region of this process is not pinned.
void note_unpinned_classic() noexcept;

}  // namespace faultline::odp
