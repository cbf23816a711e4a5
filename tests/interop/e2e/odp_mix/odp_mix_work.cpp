// SPDX-License-Identifier: BSD-3-Clause
#include "tests/interop/e2e/odp_mix/odp_mix_work.hpp"

#include <algorithm>
#include <cstdio>

namespace faultline::e2e::mix {

void Work::add(const char* what, uint64_t done, double least) {
  parts_.push_back({what, done, std::max<uint64_t>(1, static_cast<uint64_t>(amount_ * least))});
}

bool Work::is_enough() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.done >= part.least; });
}

void Work::tell_missing(const char* who) const {
  for (const Part& part : parts_) {
    if (part.done >= part.least) continue;
    std::fprintf(stderr, "odp_mix: %s: hangs: %llu %s, at least %llu expected\n", who,
                 static_cast<unsigned long long>(part.done), part.what.c_str(),
                 static_cast<unsigned long long>(part.least));
  }
}

}  // namespace faultline::e2e::mix
