// SPDX-License-Identifier: BSD-3-Clause
// A watch on part of a mapping splits it, and the kernel merges the parts when the watch is lifted. It
// merges private anonymous memory only if the parts have the same struct anon_vma, which a mapping gets with
// its first page and a split inherits. Parts of a mapping without a page would each get their own and stay
// split for ever: mremap(2) refuses them together (EFAULT).
#pragma once

#include <cstdint>

#include "odp/mappings/mapping_list.hpp"
#include "odp/mappings/userfault.hpp"

namespace faultline::odp {

class MappingSplit {
 public:
  MappingSplit();
  MappingSplit(const MappingSplit&) = delete;
  MappingSplit& operator=(const MappingSplit&) = delete;
  ~MappingSplit();

  /// Implements WatchCalls::would_stay_split and prepare_split. Never true before Linux 6.7 (PAGEMAP_SCAN).
  [[nodiscard]] bool would_stay(uint64_t address, uint64_t start, uint64_t end, MappingFacts& mapping) const;
  void prepare(const Userfault& userfault, const MappingFacts& mapping, uint64_t start, uint64_t end) const;
  /// A descriptor of /proc/self/maps.
  [[nodiscard]] int maps() const { return maps_; }

 private:
  [[nodiscard]] bool has_no_page(uint64_t start, uint64_t end) const;

  int maps_;
  int pagemap_;
  void* unreadable_;  ///< a page
  bool can_ask_ = false;
};

}  // namespace faultline::odp
