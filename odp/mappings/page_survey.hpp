// SPDX-License-Identifier: BSD-3-Clause
// What it takes to make a page resident, told before it is done: what others may have to wait for is done
// without holding them up, and latencies are told by kind.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "odp/regions/fault_kind.hpp"

namespace faultline::odp {

/// What a mapping is of.
enum class Backing : uint8_t { unknown, anonymous, shared_memory, file, huge_pages };

struct MappingFacts;

struct Survey {
  FaultKind kind = FaultKind::present;
  /// A device, or a lot of work, stands between: nobody else may wait for it.
  bool is_slow = false;
  bool of_file = false;  ///< of a file system, which may have who writes wait for its own reasons
  Backing backing = Backing::unknown;  ///< asked for pages that are not present alone
};

/// Looks at page tables; owned by the pager, used under its mutex.
class PageSurveyor {
 public:
  static constexpr size_t kMaxPages = 64;

  PageSurveyor();
  PageSurveyor(const PageSurveyor&) = delete;
  PageSurveyor& operator=(const PageSurveyor&) = delete;
  ~PageSurveyor();

  /// Of `pages` pages from a page-aligned address. At most kMaxPages.
  [[nodiscard]] Survey look(uint64_t address, size_t pages, bool write);
  /// The same of kFewest pages at most, on a machine that has no swap: at half the price.
  [[nodiscard]] Survey look_without_swap(uint64_t address, size_t pages, bool write);
  static constexpr size_t kFewest = 2;
  /// Which of them are mapped now, page 0 in bit 0.
  [[nodiscard]] uint64_t present_mask(uint64_t address, size_t pages) const;
  /// After a populate that took long for so few pages: whether a huge page was made.
  [[nodiscard]] bool is_huge(uint64_t address) const;
  /// The mapping that holds an address, as it is now; false where there is none.
  [[nodiscard]] bool find(uint64_t address, MappingFacts& facts) const;
  /// Mappings have changed. Any thread.
  void forget_backings() { generation_.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Known {
    uint64_t start = 0;
    uint64_t end = 0;
    Backing backing = Backing::unknown;
  };
  [[nodiscard]] bool read_entries(uint64_t address, size_t pages,
                                  std::array<uint64_t, kMaxPages>& entries) const;
  [[nodiscard]] Backing backing_of(uint64_t address);
  [[nodiscard]] Survey survey(uint64_t address, size_t pages, size_t fresh, bool write);

  int pagemap_ = -1;
  bool has_move_pages_ = true;
  int maps_ = -1;
  std::array<Known, 64> known_{};
  uint32_t known_generation_ = 0;
  std::atomic<uint32_t> generation_{0};
};

}  // namespace faultline::odp
