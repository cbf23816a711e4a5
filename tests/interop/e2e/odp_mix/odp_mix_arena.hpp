// SPDX-License-Identifier: BSD-3-Clause
// An arena of odp_mix in its owner: the mapping, its registration, and the looks at it while no peer can
// reach it.
#pragma once

#include <atomic>
#include <shared_mutex>
#include <string>

#include "tests/interop/e2e/odp_mix/odp_mix.hpp"

namespace faultline::e2e::mix {

/// A range of pages.
struct Pages {
  size_t first = 0;
  size_t count = 0;
};

/// What the owner found wrong.
struct Findings {
  std::atomic<uint64_t> stale_writes{0};  ///< words changed in memory that no region covers, or read-only
  std::atomic<uint64_t> wrong{0};         ///< lines and cells
  std::atomic<uint64_t> torn{0};          ///< lines, where they may be
  std::atomic<uint64_t> cut{0};           ///< lines, where they may be
  std::atomic<uint64_t> bytes_verified{0};
};

class Arena {
 public:
  /// `folder`: for files. Fails the program where the memory cannot be had; false in `here` for hugetlb.
  Arena(const Shared& shared, size_t number, ibv_pd* pd, const std::string& folder, Findings& findings);

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] size_t number() const { return number_; }
  [[nodiscard]] size_t page_count() const { return plan_.pages; }
  [[nodiscard]] size_t length_bytes() const { return plan_.pages * kPageBytes; }
  [[nodiscard]] bool is_shared() const {
    return plan_.backing == Backing::memfd || plan_.backing == Backing::file_shared;
  }
  [[nodiscard]] bool is_file() const { return fd_ >= 0; }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] uint8_t* base() const { return base_; }
  [[nodiscard]] uint8_t* at(size_t page) const { return base_ + page * kPageBytes; }
  [[nodiscard]] size_t bytes_of(Pages pages) const { return pages.count * kPageBytes; }
  /// Pages that a call may take: a huge page is one.
  [[nodiscard]] size_t unit_pages() const {
    return plan_.backing == Backing::hugetlb ? kHugeBytes / kPageBytes : 1;
  }

  /// Shared: calls on the mapping as it stands. Alone: calls that take it away and put it back.
  std::shared_mutex lock;

  void begin_disturbance() { posting().disturbances_begun.fetch_add(1, std::memory_order_acq_rel); }
  void end_disturbance() { posting().disturbances_over.fetch_add(1, std::memory_order_acq_rel); }
  /// Round a call that takes pages out of the arena's file.
  void begin_hole() { posting().holes_begun.fetch_add(1, std::memory_order_acq_rel); }
  void end_hole() { posting().holes_over.fetch_add(1, std::memory_order_acq_rel); }

  // With `lock` alone:
  /// Maps the arena's memory again: `pages` of it at their place or, where `place` is null, all of it
  /// anywhere. `flags`: MAP_FIXED or MAP_FIXED_NOREPLACE, or 0. MAP_FAILED as mmap.
  void* map(void* place, Pages pages, int flags) const;
  void move_to(uint8_t* base) { base_ = base; }
  void register_and_post(size_t pages);
  /// Then counts what is wrong in it.
  void deregister_and_check(size_t pages);
  void check(size_t pages) const;

  void tell_stale(const char* call, size_t words) const;

 private:
  [[nodiscard]] Posting& posting() const { return shared_.head().postings[number_]; }

  const Shared& shared_;
  Plan plan_;
  size_t number_;
  ibv_pd* pd_;
  Findings& findings_;
  int fd_ = -1;
  uint8_t* base_ = nullptr;
  ibv_mr* mr_ = nullptr;
};

/// Memory of the program's own, where a peer wrote before: it must stay as it is.
class Watched {
 public:
  /// Filled with a pattern first, or as it stands.
  enum class Contents : uint8_t { fill, keep };
  Watched(uint8_t* memory, size_t length_bytes, Contents contents);
  /// How many words are not what they were.
  [[nodiscard]] size_t changed() const;

 private:
  uint64_t* words_;
  std::vector<uint64_t> before_;
};

}  // namespace faultline::e2e::mix
