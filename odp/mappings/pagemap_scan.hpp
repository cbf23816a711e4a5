// SPDX-License-Identifier: BSD-3-Clause
// PAGEMAP_SCAN: newer than the headers of Debian 12 (Linux 6.7, include/uapi/linux/fs.h).
#pragma once

#include <cstdint>

#include <sys/ioctl.h>

namespace faultline::odp {

struct PageRegion {
  uint64_t start, end, categories;
};
struct PagemapScan {
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
inline constexpr unsigned long kPagemapScan = _IOWR('f', 16, PagemapScan);
inline constexpr uint64_t kPageIsPresent = uint64_t{1} << 3;
inline constexpr uint64_t kPageIsSwapped = uint64_t{1} << 4;
inline constexpr uint64_t kPageIsPfnZero = uint64_t{1} << 5;
inline constexpr uint64_t kPageIsHuge = uint64_t{1} << 6;

}  // namespace faultline::odp
