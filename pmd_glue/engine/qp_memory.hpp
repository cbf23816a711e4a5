// SPDX-License-Identifier: BSD-3-Clause
// Memory for QPs: pools of equal blocks. Large chunks use transparent huge pages if the kernel has some
// (madvise(2), no reservation). Owner: one engine's thread.
#pragma once

#include <cstddef>
#include <memory_resource>

#include "stack/base/page_resource.hpp"

namespace faultline::glue {

class QpMemory {
 public:
  QpMemory()
      : pools_({.max_blocks_per_chunk = kBlocks, .largest_required_pool_block = kLargestBlock}, &pages_) {}
  [[nodiscard]] std::pmr::memory_resource* resource() { return &pools_; }

 private:
  static constexpr size_t kBlocks = 4096;  // a chunk of QPs is 5 MiB; the first ones are small
  static constexpr size_t kLargestBlock =
      16384;  // a ring of a hundred requests; larger blocks are mapped separately

  PageResource pages_;
  std::pmr::unsynchronized_pool_resource pools_;
};

}  // namespace faultline::glue
