// SPDX-License-Identifier: BSD-3-Clause
// The order in which faults are served: admission from the engines' rings, the choice of the next service,
// and the answer. It touches no memory of the program and knows no thread.
//
// A request whose pages are already resident in its turn was served by an earlier one. A request whose pages
// another thread is serving waits for that service. Many waiters on one range therefore cost one service.
//
// Long ranges are served in chunks, in turns, so that none delays the others. Requests that stall a peer are
// served first, advice last. After the first chunk the waiter is answered, and the rest is read ahead.
// Copying then overlaps with making pages resident, and the waiter's next pages are mostly there.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "odp/copy/quiescence.hpp"
#include "odp/pager/fault_queue.hpp"
#include "odp/pager/fault_service.hpp"
#include "odp/regions/address_range.hpp"
#include "odp/regions/counter_cells.hpp"

namespace faultline::odp {

/// The pager's mutex guards the table of services. Every member requires it, unless marked "any thread". The
/// thread of a service that is `away` works on a copy of the plan.
class FaultScheduler {
 public:
  static constexpr size_t kMaxServices = 256;
  /// Advice takes at most half the table, so that engines always find a place.
  static constexpr size_t kMostAdvice = kMaxServices / 2;
  /// Every such pick prefers advice; otherwise engines that fault continuously would delay it for ever.
  static constexpr unsigned kAdviceTurn = 8;
  /// A request that an earlier one is reading ahead needs no more than its first pages.
  static constexpr uint64_t kReadAheadPages = 32;

  explicit FaultScheduler(CounterCells& counters);
  FaultScheduler(const FaultScheduler&) = delete;
  FaultScheduler& operator=(const FaultScheduler&) = delete;
  ~FaultScheduler();

  // --- ports and queues ---
  /// Returns nullptr if all ports are taken. Any thread.
  [[nodiscard]] FaultRings* open_port();
  /// Forgets the requests of ports whose engines have requested their closing, and releases these ports.
  void release_closing_ports();
  /// Any thread.
  [[nodiscard]] BackgroundQueue& background() { return background_; }
  /// True if a request, advice or a closing port is queued, or a call that requests waited for has ended.
  /// Any thread.
  [[nodiscard]] bool has_queued_work() const;

  // --- services ---
  /// Gives queued requests a place in the table, in rotation over the ports; then advice.
  void admit();
  /// Picks a ready service: urgent first, advice last, in rotation. Returns nullptr if none is ready.
  [[nodiscard]] FaultService* next();
  [[nodiscard]] bool has_ready() const;
  /// The service waits until a thread returns or a call of the program ends.
  static void make_wait(FaultService& service) { service.state = ServiceState::waiting; }
  /// Between the two, a thread serves the plan without the mutex.
  void begin_away(FaultService& service);
  void end_away(FaultService& service);
  /// Answers the waiter before the whole range is resident. The service goes on.
  void answer(FaultService& service, Outcome outcome);
  /// Ends a service, and answers its waiter unless that was done before.
  void finish(FaultService& service, Outcome outcome);

  // --- questions ---
  [[nodiscard]] size_t away_count() const { return away_count_; }
  /// True if is_such(plan) for the plan of a service that is away.
  template <typename IsSuch>
  [[nodiscard]] bool any_away(IsSuch is_such) const {
    if (away_count_ == 0) return false;
    for (size_t i = 0; i < service_count_; ++i) {
      const FaultService& service = services_[in_use_[i]];
      if (service.state == ServiceState::away && is_such(service.plan)) return true;
    }
    return false;
  }
  /// Returns when the oldest service began, at most `now_ns`.
  [[nodiscard]] uint64_t oldest_start_ns(uint64_t now_ns) const;

  // --- calls of the program ---
  /// Call before the last look for a call in whose range a request is: its end then wakes the waiting.
  void expect_call_end() { waits_for_calls_.store(1, std::memory_order_seq_cst); }
  /// A call of the program has ended. Returns true if the pager has to be woken. Any thread; without locks.
  [[nodiscard]] bool note_call_end() {
    if (waits_for_calls_.load(std::memory_order_seq_cst) == 0) return false;
    call_ended_.store(true, std::memory_order_seq_cst);
    return true;
  }
  /// Makes waiting services ready if a call has ended since.
  void look_at_call_ends();

 private:
  void wake_waiting();
  [[nodiscard]] FaultService& place_for(const FaultRequest& request);
  void release_place(size_t index);
  void finish_advice(FaultService& service, Outcome outcome);
  [[nodiscard]] static int rank_of(const FaultService& service, bool advice_first);
  /// True if an earlier request, which was answered and is being read ahead, contains this request's range.
  [[nodiscard]] bool is_read_ahead(const FaultRequest& request) const;

  template <typename Call>
  void for_each_port(Call call) const {
    for (const std::atomic<FaultRings*>& slot : ports_) {
      FaultRings* port = slot.load(std::memory_order_acquire);
      if (port == nullptr) return;
      call(*port);
    }
  }

  CounterCells& counters_;
  /// Allocated at first use, reused by later engines, freed with the scheduler.
  std::array<std::atomic<FaultRings*>, Quiescence::kMaxSessions> ports_{};
  std::mutex ports_mutex_;  ///< guards the opening of ports
  BackgroundQueue background_;

  // Guarded by the pager's mutex.
  std::array<FaultService, kMaxServices> services_;
  std::array<uint16_t, kMaxServices> in_use_{};  ///< indices of services_, the first service_count_
  std::array<uint16_t, kMaxServices> free_{};    ///< the other indices
  size_t service_count_ = 0;
  size_t away_count_ = 0;
  size_t cursor_ = 0;
  unsigned picks_ = 0;

  std::atomic<uint32_t> waits_for_calls_{0};  ///< 1: a service waits for a call of the program
  std::atomic<bool> call_ended_{false};
};

}  // namespace faultline::odp
