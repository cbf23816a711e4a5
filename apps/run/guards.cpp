// SPDX-License-Identifier: BSD-3-Clause
#include "apps/run/guards.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <dlfcn.h>

#include "stack/include/faultline/faultline.h"

namespace faultline::run {
namespace {

const char* text_of(int state) {
  switch (state) {
    case FAULTLINE_GUARD_WORKS:
      return "works";
    case FAULTLINE_GUARD_LIMITED:
      return "limited";
    default:
      return "missing";
  }
}

}  // namespace

int print_guards() {
  // Preloaded, not linked: this process represents a program that does not know the library.
  const auto query =
      reinterpret_cast<decltype(&faultline_query_guards)>(dlsym(RTLD_DEFAULT, "faultline_query_guards"));
  if (query == nullptr) {
    std::fprintf(stderr, "faultline-run: --guards: the library could not be preloaded\n");
    return 1;
  }
  std::vector<faultline_guard> guards(static_cast<size_t>(std::max(0, query(nullptr, 0))));
  const int count = query(guards.data(), guards.size());
  for (int i = 0; i < count; ++i) {
    const faultline_guard& guard = guards[static_cast<size_t>(i)];
    std::printf("%-20s %-8s %s\n", guard.name, text_of(guard.state), guard.text);
  }
  return count < 0 ? 1 : 0;
}

}  // namespace faultline::run
