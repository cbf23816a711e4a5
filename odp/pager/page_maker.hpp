// SPDX-License-Identifier: BSD-3-Clause
// Makes the pages of a fault resident, a chunk at a time: plans what is missing and what that costs, marks it
// `faulting`, populates it, pins it within the budget and publishes it in the page map.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "odp/copy/quiescence.hpp"
#include "odp/invalidation/invalidation_monitor.hpp"
#include "odp/mappings/page_survey.hpp"
#include "odp/pager/fault_scheduler.hpp"
#include "odp/pager/implicit_children.hpp"
#include "odp/pager/swap_space.hpp"
#include "odp/pins/pin_table.hpp"
#include "odp/regions/counter_cells.hpp"
#include "odp/regions/key_table.hpp"

namespace faultline::odp {

/// How a service goes on after an attempt at its next chunk.
enum class ChunkResult : uint8_t {
  more,       ///< in its next turn: the next chunk, or this one again
  planned,    ///< its pages are marked `faulting`: populate() without the mutex, then finish_away()
  blocked,    ///< by another thread's service, a call of the program, or the lack of a thread for slow work
  complete,   ///< the whole range is resident
  impossible  ///< a violation
};

/// Why a chunk's missing pages are to be made resident now, or not.
enum class PlanResult : uint8_t {
  planned,
  nothing_missing,
  never,        ///< a page is dead
  in_call,      ///< a call of the program decides on the pages; its end makes waiting services ready
  call_changed  ///< such a call has just begun or ended: plan again
};

/// What has become of a plan's pages.
enum class PublishResult : uint8_t {
  published,
  again,  ///< not all: an invalidation intervened, or the populate is worth another attempt
  never   ///< the pages cannot be made resident
};

/// The pager's mutex guards its state. Every member requires the mutex, unless marked otherwise.
class PageMaker {
 public:
  struct Parts {
    KeyTable& keys;
    ReaderStripes& readers;
    PinTable& pins;
    CounterCells& counters;
    InvalidationMonitor& monitor;
    PageSurveyor& surveyor;
    FaultScheduler& scheduler;
    ImplicitChildren& children;
    unsigned threads;
  };

  explicit PageMaker(const Parts& parts) : parts_(parts) {}
  PageMaker(const PageMaker&) = delete;
  PageMaker& operator=(const PageMaker&) = delete;

  // --- services of the pager's threads; the caller holds no ReaderStripes::Guard ---
  /// Makes the next chunk of a service resident, or only plans it if that may take long.
  [[nodiscard]] ChunkResult make_chunk(FaultService& service);
  /// Makes the pages of a plan resident. Any thread, with or without the mutex: it changes only the plan.
  void populate(ChunkPlan& plan) const;
  /// Completes a chunk whose plan was populated without the mutex.
  [[nodiscard]] ChunkResult finish_away(FaultService& service);

  // --- the steps, for short faults too; the caller holds a ReaderStripes::Guard ---
  /// Plans the missing pages of a chunk.
  [[nodiscard]] PlanResult plan_missing(Region& region, PageRange chunk, bool write, ChunkPlan& plan);
  /// Marks pages `faulting` that do not allow the access; returns their number.
  [[nodiscard]] size_t begin_faults(Region& region, PageRange pages, bool write);
  /// Completes the service's plan: pins the pages, then publishes those that no invalidation has removed
  /// meanwhile. `may_wait` is false on an engine's thread, for which the monitor may be waiting.
  [[nodiscard]] PublishResult publish(Region& region, FaultService& service, bool may_wait = true);
  /// In fresh memory, few pages that took long indicate a huge page.
  void note_if_huge(ChunkPlan& plan, uint64_t took_ns) const;

  /// Pins made since then stay, for their waiters to use the pages.
  [[nodiscard]] uint64_t protect_since_ns(uint64_t now_ns) const {
    return parts_.scheduler.oldest_start_ns(now_ns) - kMinResidenceNs;
  }
  [[nodiscard]] SwapSpace& swap_space() { return swap_space_; }
  /// Ranges that have lost their pins to make room.
  [[nodiscard]] PinTable::Victims& victims() { return victims_; }

  /// Pages that cannot be pinned count as resident for this long.
  static constexpr uint64_t kUnpinnedNs = 250'000'000;
  /// Makes such pages absent in time, and makes the pins that have waited.
  void expire_unpinned();
  /// True while expire_unpinned() has work. Any thread.
  [[nodiscard]] bool expires() const { return parts_.counters.unpinned_bytes.get() != 0; }
  /// True if pages of files were read from disk lately, so that others may have been reclaimed. Any thread.
  [[nodiscard]] bool reads_files() const { return reads_files_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kChunkPages = PageSurveyor::kMaxPages;
  /// Minimum time that pages stay pinned, for their waiter to use them.
  static constexpr uint64_t kMinResidenceNs = 2'000'000;
  /// For this long after a page had to be read from its file, the kernel may be reclaiming others.
  static constexpr uint64_t kFileReadsNs = 1'000'000'000;

  /// The next chunk of a service.
  struct Chunk {
    enum class Place : uint8_t {
      in_region,
      nowhere,       ///< advice: there is nothing to make resident
      beyond_range,  ///< no page is left
      forbidden      ///< no such region, right or memory
    };
    Place place = Place::forbidden;
    Region* region = nullptr;  ///< of an implicit region: the child
    PageRange pages = {};      ///< of `region`
    size_t total_pages = 0;    ///< of the whole request
  };

  [[nodiscard]] Chunk find_chunk(const FaultService& service);
  [[nodiscard]] ChunkResult make_missing(Region& region, PageRange chunk, FaultService& service);
  [[nodiscard]] ChunkResult make_planned(Region& region, FaultService& service);
  [[nodiscard]] ChunkResult publish_present(Region& region, PageRange chunk, FaultService& service);
  [[nodiscard]] bool is_being_made(const ChunkPlan& plan) const;
  [[nodiscard]] bool is_in_call(const AddressRange& range);
  int watch_again(const Region& region, const ChunkPlan& plan);
  [[nodiscard]] bool is_paged_by_program(Region& region, const ChunkPlan& plan);
  [[nodiscard]] PublishResult note_failure(Region& region, const ChunkPlan& plan, FaultService& service);
  void give_up(Region& region, PageRange pages);

  const Parts parts_;
  SwapSpace swap_space_;
  PinTable::Victims victims_;
  uint64_t next_expiry_ns_ = 0;
  uint64_t file_read_at_ns_ = 0;
  std::atomic<bool> reads_files_{false};
};

}  // namespace faultline::odp
