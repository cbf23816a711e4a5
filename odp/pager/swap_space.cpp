// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pager/swap_space.hpp"

#include <fstream>
#include <limits>
#include <string_view>

#include <sys/sysinfo.h>

namespace faultline::odp {
namespace {

constexpr uint64_t kSwapLookEveryNs = 1'000'000'000;
constexpr uint64_t kAskEveryNs = 100'000'000;

/// proc(5), /proc/swaps: a line of titles, then one line for each space, which begins with its path.
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
  good_until_ns_ = now_ns + kSwapLookEveryNs;
}

bool SwapSpace::is_absent(uint64_t now_ns) {
  if (now_ns < absence_good_until_ns_) return absent_;
  struct sysinfo facts {};
  absent_ = sysinfo(&facts) == 0 && facts.totalswap == 0;
  absence_good_until_ns_ = now_ns + kAskEveryNs;
  return absent_;
}

}  // namespace faultline::odp
