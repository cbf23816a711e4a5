// SPDX-License-Identifier: BSD-3-Clause
#include "odp/mappings/mapping_split.hpp"

#include <algorithm>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/mappings/pagemap_scan.hpp"
#include "odp/regions/page_map.hpp"

namespace faultline::odp {

MappingSplit::MappingSplit()
    : maps_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)),
      pagemap_(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)),
      unreadable_(reinterpret_cast<void*>(
          syscall(SYS_mmap, nullptr, kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
  const auto own_page = reinterpret_cast<uint64_t>(unreadable_);
  can_ask_ = unreadable_ != MAP_FAILED && has_no_page(own_page, own_page + kPageBytes);
}

MappingSplit::~MappingSplit() {
  if (maps_ >= 0) close(maps_);
  if (pagemap_ >= 0) close(pagemap_);
  if (unreadable_ != MAP_FAILED) syscall(SYS_munmap, unreadable_, kPageBytes);
}

bool MappingSplit::would_stay(uint64_t address, uint64_t start, uint64_t end, MappingFacts& mapping) const {
  if (!can_ask_ || !find_mapping(maps_, address, mapping) || mapping.backing != Backing::anonymous)
    return false;
  const bool is_split = mapping.start < start || mapping.end > end;
  return is_split && has_no_page(mapping.start, mapping.end);
}

void MappingSplit::prepare(const Userfault& userfault, const MappingFacts& mapping, uint64_t start,
                           uint64_t end) const {
  if (userfault.watch(mapping.start, mapping.end) != 0) return;
  // The kernel prepares the mapping for a page (anon_vma_prepare), then fails to read the page. The page
  // table remains, so the page is chosen at the end, since a huge page is least likely there.
  userfault.copy(mapping.end - kPageBytes, reinterpret_cast<uint64_t>(unreadable_), kPageBytes);
  // Costs nothing, since the mapping has no page.
  if (mapping.start < start) userfault.unwatch(mapping.start, std::min(start, mapping.end));
  if (mapping.end > end) userfault.unwatch(std::max(end, mapping.start), mapping.end);
}

/// Ignores the zero page, which needs no anon_vma.
bool MappingSplit::has_no_page(uint64_t start, uint64_t end) const {
  PageRegion found{};
  PagemapScan scan{};
  scan.size = sizeof scan;
  scan.start = start;
  scan.end = end;
  scan.vec = reinterpret_cast<uint64_t>(&found);
  scan.vec_len = 1;
  scan.max_pages = 1;
  scan.category_inverted = kPageIsPfnZero;
  scan.category_mask = kPageIsPfnZero;
  scan.category_anyof_mask = kPageIsPresent | kPageIsSwapped;
  scan.return_mask = kPageIsPresent;
  return syscall(SYS_ioctl, pagemap_, kPagemapScan, &scan) == 0;
}

}  // namespace faultline::odp
