// SPDX-License-Identifier: BSD-3-Clause
#include "odp/mappings/page_survey.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/mappings/mapping_list.hpp"
#include "odp/mappings/pagemap_scan.hpp"
#include "odp/regions/page_map.hpp"

namespace faultline::odp {
namespace {

// proc(5), /proc/pid/pagemap.
constexpr uint64_t kEntryPresent = uint64_t{1} << 63;
constexpr uint64_t kEntrySwapped = uint64_t{1} << 62;

/// More pages of fresh memory than this are much work (1.2 us each).
constexpr size_t kFewPages = 16;

}  // namespace

PageSurveyor::PageSurveyor()
    : pagemap_(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)),
      maps_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}

PageSurveyor::~PageSurveyor() {
  if (pagemap_ >= 0) close(pagemap_);
  if (maps_ >= 0) close(maps_);
}

bool PageSurveyor::read_entries(uint64_t address, size_t pages,
                                std::array<uint64_t, kMaxPages>& entries) const {
  const size_t bytes = std::min(pages, kMaxPages) * sizeof(uint64_t);
  const auto offset = static_cast<off_t>((address >> kPageShift) * sizeof(uint64_t));
  return pagemap_ >= 0 && pread(pagemap_, entries.data(), bytes, offset) == static_cast<ssize_t>(bytes);
}

uint64_t PageSurveyor::present_mask(uint64_t address, size_t pages) const {
  std::array<uint64_t, kMaxPages> entries{};
  if (!read_entries(address, pages, entries)) return 0;
  uint64_t mask = 0;
  for (size_t i = 0; i < std::min(pages, kMaxPages); ++i)
    mask |= uint64_t{(entries[i] & kEntryPresent) != 0} << i;
  return mask;
}

Survey PageSurveyor::look(uint64_t address, size_t pages, bool write) {
  std::array<uint64_t, kMaxPages> entries{};
  // Without the file all pages count as fresh memory, and as slow if there are many.
  const bool known = read_entries(address, pages, entries);
  size_t fresh = 0;
  for (size_t i = 0; i < pages; ++i) {
    if (known && (entries[i] & kEntrySwapped) != 0) return {FaultKind::swap, true};
    if (!known || (entries[i] & kEntryPresent) == 0) ++fresh;
  }
  return survey(address, pages, fresh, write);
}

/// move_pages(2) without target nodes reports where pages are, without reading pagemap. It returns ENOENT
/// for swapped pages as well as for pages that were never touched.
Survey PageSurveyor::survey_without_swap(uint64_t address, size_t pages, bool write) {
  std::array<uint64_t, kFewest> addresses{};
  std::array<int, kFewest> nodes{};
  for (size_t i = 0; i < pages; ++i) addresses[i] = address + i * kPageBytes;
  if (!has_move_pages_ || pages > kFewest) return look(address, pages, write);
  if (syscall(SYS_move_pages, 0, pages, addresses.data(), nullptr, nodes.data(), 0) != 0) {
    has_move_pages_ = false;  // a kernel without it, or a seccomp filter
    return look(address, pages, write);
  }
  size_t fresh = 0;
  for (size_t i = 0; i < pages; ++i) {
    if (nodes[i] == -ENOENT)
      ++fresh;
    else if (nodes[i] < 0)  // the zero page, or no mapping
      return look(address, pages, write);
  }
  return survey(address, pages, fresh, write);
}

/// Surveys pages of which none is swapped out and `fresh` are not mapped.
Survey PageSurveyor::survey(uint64_t address, size_t pages, size_t fresh, bool write) {
  if (fresh == 0) return {FaultKind::present, false};
  const bool many = fresh > kFewPages;
  const Backing backing = backing_of(address);
  switch (backing) {
    case Backing::huge_pages:
      return {FaultKind::huge, true};
    case Backing::file:
    case Backing::shared_memory: {
      const bool of_file = backing == Backing::file;
      std::array<unsigned char, kMaxPages> in_core{};
      if (mincore(reinterpret_cast<void*>(address), pages * kPageBytes, in_core.data()) != 0)
        return {FaultKind::minor, many || of_file, of_file};
      const bool all = std::all_of(in_core.begin(), in_core.begin() + static_cast<long>(pages),
                                   [](unsigned char page) { return (page & 1) != 0; });
      if (all) return {FaultKind::minor, many || (of_file && write), of_file};
      // In shared memory the page may never have been written, or may be in swap: the page tables do not
      // distinguish.
      return {of_file ? FaultKind::file : FaultKind::minor, true, of_file};
    }
    default:
      return {write ? FaultKind::minor : FaultKind::zero_page, many, false, backing};
  }
}

bool PageSurveyor::is_huge(uint64_t address) const {
  PageRegion found{};
  PagemapScan scan{};
  scan.size = sizeof scan;
  scan.start = address;
  scan.end = address + kPageBytes;
  scan.vec = reinterpret_cast<uint64_t>(&found);
  scan.vec_len = 1;
  scan.category_mask = kPageIsHuge;
  scan.return_mask = kPageIsHuge;
  return pagemap_ >= 0 && syscall(SYS_ioctl, pagemap_, kPagemapScan, &scan) == 1;
}

bool PageSurveyor::find(uint64_t address, MappingFacts& facts) const {
  return find_mapping(maps_, address, facts);
}

Backing PageSurveyor::backing_of(uint64_t address) {
  const uint32_t generation = generation_.load(std::memory_order_relaxed);
  if (generation != known_generation_) {
    known_.fill({});
    known_generation_ = generation;
  }
  constexpr unsigned kSlotShift = 21;
  Known& known = known_[(address >> kSlotShift) % known_.size()];
  if (address >= known.start && address < known.end) return known.backing;
  MappingFacts facts;
  if (!find_mapping(maps_, address, facts)) return Backing::unknown;
  known = {facts.start, facts.end, facts.backing};
  return known.backing;
}

}  // namespace faultline::odp
