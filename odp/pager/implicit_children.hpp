// SPDX-License-Identifier: BSD-3-Clause
// Creates and reclaims the children of implicit regions. Engines only look children up
// (odp/regions/child_table.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "odp/copy/quiescence.hpp"
#include "odp/invalidation/invalidation_monitor.hpp"
#include "odp/mappings/page_survey.hpp"
#include "odp/pager/fault_scheduler.hpp"
#include "odp/pins/pin_table.hpp"
#include "odp/regions/child_table.hpp"
#include "odp/regions/counter_cells.hpp"
#include "odp/regions/key_table.hpp"

namespace faultline::odp {

/// The pager's mutex guards the places of the pool. Every member requires it, unless marked "any thread".
class ImplicitChildren {
 public:
  struct Parts {
    KeyTable& keys;
    ReaderStripes& readers;
    Quiescence& quiescence;
    PinTable& pins;
    ChildPool& pool;
    CounterCells& counters;
    InvalidationMonitor& monitor;
    const PageSurveyor& surveyor;
    const FaultScheduler& scheduler;  ///< a child that a thread is serving stays
  };

  explicit ImplicitChildren(const Parts& parts) : parts_(parts) {}

  /// Reclaims children if the service needs a new one and all places are taken. False if it still has no
  /// place. Waits for the engines and readers: the caller holds no ReaderStripes::Guard.
  [[nodiscard]] bool make_room_for(const FaultService& service) {
    if (!parts_.pool.is_full() || !needs_child(service)) return true;
    reclaim(true);
    return !parts_.pool.is_full();
  }
  /// Returns the child that holds the address, and creates it if necessary. Returns nullptr if nothing is
  /// mapped there, all places are taken, or memory is short; for NO_FAULT advice also if no page there is
  /// mapped. The caller holds a ReaderStripes::Guard.
  [[nodiscard]] Region* find_or_make(Region& parent, const FaultRequest& request, uint64_t address);

  /// A child may have lost its last page: reclaim_idle() looks for it. Any thread.
  void note_empty_child() { parts_.pool.sweep_wanted().store(true, std::memory_order_relaxed); }
  /// True if reclaim_idle() has work. Any thread.
  [[nodiscard]] bool has_idle_work() const {
    return parts_.pool.sweep_wanted().load(std::memory_order_relaxed);
  }
  /// Reclaims children without a page, if there may be some.
  void reclaim_idle() {
    if (parts_.pool.sweep_wanted().exchange(false, std::memory_order_relaxed)) reclaim(false);
  }
  /// Removes all children of a region that no thread can find any more.
  void drop_all(Region& parent);

 private:
  [[nodiscard]] Region* make(Region& parent, uint64_t address);
  /// True if the next chunk belongs to an implicit region and has no child yet.
  [[nodiscard]] bool needs_child(const FaultService& service) const;
  [[nodiscard]] bool may_make(const FaultRequest& request, uint64_t address) const;
  [[nodiscard]] bool is_in_service(const Region& region) const;
  /// Reclaims children without a page and, to make room, those unused for longest.
  void reclaim(bool make_room);
  /// Waits until no engine and no reader can hold the children, and returns their places.
  void take_away(std::span<Child* const> children);

  const Parts parts_;
};

}  // namespace faultline::odp
