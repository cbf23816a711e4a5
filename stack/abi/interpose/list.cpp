// SPDX-License-Identifier: BSD-3-Clause
// Announces the interposed names on which guards depend. Part of every library and program that has the
// hooks.
#include <algorithm>
#include <array>
#include <cstddef>

#include "odp/guards.hpp"

namespace faultline::odp {
namespace {

enum class NameGuard { memory, signals, none };
struct InterposedName {
  const char* name;
  NameGuard guard;
};

constexpr InterposedName kNames[] = {
#define INTERPOSED(name, library, guard, file) {#name, NameGuard::guard},
#include "stack/abi/interpose/names.def"
#undef INTERPOSED
};

template <NameGuard kGuard>
constexpr auto names_of() {
  constexpr auto is_wanted = [](const InterposedName& name) { return name.guard == kGuard; };
  std::array<const char*, std::count_if(std::begin(kNames), std::end(kNames), is_wanted)> names{};
  size_t count = 0;
  for (const InterposedName& name : kNames)
    if (is_wanted(name)) names[count++] = name.name;
  return names;
}

constexpr std::array kMemoryNames = names_of<NameGuard::memory>();
constexpr std::array kSignalNames = names_of<NameGuard::signals>();

// Its address also identifies the object that contains the hooks.
constinit const HookedNames kHooked{.memory = kMemoryNames, .signals = kSignalNames};

__attribute__((constructor)) void announce() {
  announce_hooks(kHooked);
}

}  // namespace
}  // namespace faultline::odp
