// SPDX-License-Identifier: BSD-3-Clause
#include "odp/swap_space.hpp"

#include <fstream>
#include <limits>
#include <string_view>

namespace faultline::odp {
namespace {

constexpr uint64_t kLookEveryNs = 1'000'000'000;

/// proc(5), /proc/swaps: a line of titles, then one for each space, which begins with its path.
bool all_in_memory(std::istream& list) {
  constexpr auto kRestOfLine = std::numeric_limits<std::streamsize>::max();
  list.ignore(kRestOfLine, '\n');
  size_t spaces = 0;
  for (std::string path; list >> path; ++spaces) {
    if (!std::string_view(path).substr(path.rfind('/') + 1).starts_with("zram")) return false;
    list.ignore(kRestOfLine, '\n');
  }
  return spaces != 0;
}

}  // namespace

void SwapSpace::look(uint64_t now_ns) {
  if (now_ns < good_until_ns_) return;
  std::ifstream list(list_);
  in_memory_ = all_in_memory(list);
  good_until_ns_ = now_ns + kLookEveryNs;
}

}  // namespace faultline::odp
