// SPDX-License-Identifier: BSD-3-Clause
// Predicts what it takes to make a page resident. Slow work can then be done without delaying other requests,
// and latencies are reported by kind.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "odp/regions/fault_kind.hpp"

namespace faultline::odp {

/// What a mapping maps.
enum class Backing : uint8_t { unknown, anonymous, shared_memory, file, huge_pages };

struct MappingFacts;

struct Survey {
  FaultKind kind = FaultKind::present;
  /// Needs a device or much work: no other request may wait for it.
  bool is_slow = false;
  bool of_file = false;                ///< of a file system, which may block a writer for its own reasons
  Backing backing = Backing::unknown;  ///< set only for pages that are not present
};

/// Reads page tables; owned by the pager, used under its mutex.
class PageSurveyor {
 public:
  static constexpr size_t kMaxPages = 64;

  PageSurveyor();
  PageSurveyor(const PageSurveyor&) = delete;
  PageSurveyor& operator=(const PageSurveyor&) = delete;
  ~PageSurveyor();

  /// Surveys `pages` pages from a page-aligned address; at most kMaxPages.
  [[nodiscard]] Survey look(uint64_t address, size_t pages, bool write);
  /// The same for at most kFewest pages, on a machine without swap: half the cost.
  [[nodiscard]] Survey survey_without_swap(uint64_t address, size_t pages, bool write);
  static constexpr size_t kFewest = 2;
  /// Returns which of the pages are mapped now, page 0 in bit 0.
  [[nodiscard]] uint64_t present_mask(uint64_t address, size_t pages) const;
  /// Call after a populate that took long for so few pages: true if a huge page was made.
  [[nodiscard]] bool is_huge(uint64_t address) const;
  /// Finds the mapping that holds an address now; false if there is none.
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
