// SPDX-License-Identifier: BSD-3-Clause
// Determines which guards of registered memory work in this process. A guard is what the library needs of
// the process or the kernel so that a guarantee of docs/on-demand-paging.md holds. Containers, sandboxes,
// small limits and a late dlopen disable guards, so each is tested.
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
  const char* lost = "";           ///< the same in few words; static storage
  bool is_worth_a_warning = true;  ///< if it does not work; false for what most processes lack
};

struct GuardList {
  std::array<Guard, 8> guards;
  size_t count = 0;
};

/// Tests all guards now. Allocates and makes system calls: not on the data path. Does not throw.
[[nodiscard]] GuardList query_guards() noexcept;

/// Logs one line for the guards that do not work, once per process; at level info a line for each. Throws
/// std::bad_alloc if the logger cannot be created; after one successful call, later log lines do not throw.
void log_guards_once();

/// The C library's names that this library defines, by what they guard.
struct HookedNames {
  std::span<const char* const> memory;   ///< names that remove memory; the first three unmap
  std::span<const char* const> signals;  ///< names that install handlers
};
inline constexpr size_t kUnmappingNames = 3;
/// Called before main, from the file that is linked if the hooks are: without it this program has no hooks.
void announce_hooks(const HookedNames& names) noexcept;
/// True if the program's unmapping calls (munmap, mmap, mremap) reach this library's hooks. False if the
/// library was opened after the C library: the program's names are then already bound.
[[nodiscard]] bool are_hooks_bound() noexcept;

/// What a domain found at its start. The guards report that rather than the result of a second try.
struct StartFacts {
  UserfaultLevel level = UserfaultLevel::none;
  UserfaultLevel wanted = UserfaultLevel::full;  ///< by configuration
  int userfault_error = 0;
  uint64_t pin_budget_bytes = 0;
  bool allow_unguarded = false;
};
void note_start(const StartFacts& facts) noexcept;
/// Records that a classic region of this process could not be pinned. Returns true if a line that has been
/// logged already gives the reason.
[[nodiscard]] bool note_unpinned_classic(int error) noexcept;

}  // namespace faultline::odp
