// SPDX-License-Identifier: BSD-3-Clause
// Combines the parts of a memory domain, and implements its control calls.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "odp/copy/quiescence.hpp"
#include "odp/invalidation/invalidation_monitor.hpp"
#include "odp/pager/pager.hpp"
#include "odp/pager/prefetcher.hpp"
#include "odp/pins/pin_table.hpp"
#include "odp/regions/counter_cells.hpp"
#include "odp/regions/key_table.hpp"
#include "odp/regions/memory_domain.hpp"
#include "odp/regions/region_index.hpp"
#include "odp/registration_guard.hpp"
#include "stack/base/process/fork_generation.hpp"

namespace faultline::odp {

class Domain final : public MemoryDomain, private InvalidationSink {
 public:
  explicit Domain(const DomainConfig& config);
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  ~Domain() override;

  /// Returns false and sets `error` to the reason.
  [[nodiscard]] bool start(std::string& error);

  [[nodiscard]] RegionResult register_region(const RegionRequest& request) override;
  [[nodiscard]] int deregister_region(Key key) override;
  [[nodiscard]] int replace_region(Key key, const RegionRequest& request) override;
  [[nodiscard]] RegionResult allocate_window(ProtectionDomain domain, WindowType type) override;
  [[nodiscard]] int deallocate_window(Key key) override;
  [[nodiscard]] std::unique_ptr<EngineSession> attach_engine() override;
  void hint_will_write(ProtectionDomain domain, std::span<const WriteHint> hints,
                       SettledRange& settled) override;
  [[nodiscard]] const std::atomic<uint64_t>& page_losses() const override { return PageMap::losses(); }
  [[nodiscard]] int prefetch(ProtectionDomain domain, std::span<const PrefetchRange> ranges,
                             PrefetchKind kind, bool wait) override;
  [[nodiscard]] Counters counters() const override { return counters_.snapshot(); }
  [[nodiscard]] bool region_counters(Key key, RegionCounters& counters) override;

 private:
  [[nodiscard]] Quiescence& quiescence() override { return quiescence_; }
  [[nodiscard]] bool touches(uint64_t start, uint64_t end) override;
  bool apply(uint64_t start, uint64_t end, PageEvent event) override;
  void release_pins(uint64_t start, uint64_t end) override;
  void mark_unmapped_dead(uint64_t start, uint64_t end) override;
  void mark_for_fork() override;
  void call_has_ended() override { pager_->recheck_waiting(); }
  void change_pages(Region& region, PageRange pages, PageEvent asked);
  void note_paged_by_program(uint64_t start, uint64_t end) override;
  void wait_for_services() override { pager_->wait_for_services(); }
  void note_unwatched(uint64_t start, uint64_t end) override;

  /// Creates a region, complete but not yet published. Returns 0 or an errno.
  [[nodiscard]] int prepare(const RegionRequest& request, std::unique_ptr<Region>& region);
  /// Both throw std::bad_alloc, and have changed nothing then.
  [[nodiscard]] int prepare_range(const RegionRequest& request, std::unique_ptr<Region>& region);
  [[nodiscard]] int prepare_implicit(const RegionRequest& request, std::unique_ptr<Region>& region);
  /// Closes a live region, so that no window can be bound to it any more. Returns 0, ENOENT or EBUSY.
  [[nodiscard]] int close(Key key);
  /// Retires a region that no key refers to any more.
  void retire(Region* region);
  /// Gives the region a key and a place in the index. Returns 0, or an errno, and then nothing has changed.
  [[nodiscard]] int enlist(Region& region);
  /// Returns 0, or the errno of a range that is not watched.
  int watch(Region& region);
  /// True if pages of the hint's range are missing. The caller is a reader.
  [[nodiscard]] bool asks_for_pages(const Target& target, const WriteHint& hint) const;
  void settle(const Target& target, const WriteHint& hint, uint64_t losses, SettledRange& settled) const;
  [[nodiscard]] int check_prefetch(ProtectionDomain domain, const PrefetchRange& range, PrefetchKind kind,
                                   PopulateRange& memory);
  [[nodiscard]] int make_ready(Region& region);
  void dismantle(Region& region);

  /// True in a forked child of the process that created the domain: its threads, and the locks that they
  /// hold, do not exist here.
  [[nodiscard]] bool is_of_parent_process() const { return fork_generation() != generation_; }

  const DomainConfig config_;
  const uint32_t generation_ = fork_generation();
  CounterCells counters_;
  Quiescence quiescence_;
  ReaderStripes readers_;
  KeyTable keys_;
  std::mutex windows_mutex_;
  std::unordered_map<uint32_t, std::unique_ptr<Window>> windows_;  ///< by index of the key; windows_mutex_
  RegionIndex index_;
  PinTable pins_;
  ChildPool children_;
  UnmapGuard guard_;
  std::shared_ptr<InvalidationMonitor> monitor_;
  std::unique_ptr<Pager> pager_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace faultline::odp
