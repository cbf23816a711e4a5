// SPDX-License-Identifier: BSD-3-Clause
// Short faults on the engine's own thread. Waking a thread and switching back takes longer than making a
// page of fresh memory resident.
#pragma once

#include <cstdint>

#include "odp/copy/quiescence.hpp"
#include "odp/pager/fault_scheduler.hpp"
#include "odp/pager/page_maker.hpp"
#include "odp/pins/pin_table.hpp"
#include "odp/regions/key_table.hpp"

namespace faultline::odp {

/// The pager's mutex guards its state. Every member requires the mutex, except is_short().
class ShortFaults {
 public:
  struct Parts {
    KeyTable& keys;
    ReaderStripes& readers;
    PinTable& pins;
    PageSurveyor& surveyor;
    FaultScheduler& scheduler;
    PageMaker& maker;
  };

  explicit ShortFaults(const Parts& parts) : parts_(parts) {}

  /// Pages of a packet, at any offset.
  static constexpr uint64_t kMostPages = 2;

  /// True if the range may be short enough.
  [[nodiscard]] static bool is_short(const FaultRequest& request) {
    return request.length_bytes != 0 && request.length_bytes <= kMostPages * kPageBytes && !request.no_fault;
  }
  /// False while the engines leave their faults to the threads, or evicted pages have to be paged out, which
  /// takes time.
  [[nodiscard]] bool may_serve(uint64_t now_ns) const {
    return now_ns >= again_at_ns_ && parts_.maker.victims().count == 0;
  }
  /// Serves a fault that is sure to cost little. Returns true if its pages are resident. Else it has to be
  /// queued; the threads also count and answer a fault that fails.
  [[nodiscard]] bool serve(FaultService& service);
  /// Learns from the duration of serve(), which began at `start_ns`.
  void note_duration(uint64_t start_ns, uint64_t took_ns);

 private:
  [[nodiscard]] Region* find(const FaultRequest& request, PageRange& pages) const;
  [[nodiscard]] bool make_resident(Region& region, FaultService& service);
  [[nodiscard]] bool populate_by_touch(Region& region, ChunkPlan& plan);
  [[nodiscard]] bool populate_by_pin(Region& region, ChunkPlan& plan);

  const Parts parts_;
  unsigned long_in_a_row_ = 0;  ///< faults that took an engine too long
  uint64_t again_at_ns_ = 0;    ///< until then engines leave their faults to the threads
};

}  // namespace faultline::odp
