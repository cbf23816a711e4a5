// SPDX-License-Identifier: BSD-3-Clause
// The control threads that serve page faults, and the mutex that their parts share: FaultScheduler chooses
// what is served, PageMaker makes it resident, ImplicitChildren provides the children of implicit regions,
// and ShortFaults serves what an engine need not leave to a thread.
//
// One thread at a time leads: it holds the mutex, takes requests and serves them. Before work that may take
// long (swap, a file, much fresh memory) it releases the mutex, and the next request wakes another thread. A
// slow page thus delays only its own request. Only making memory resident proceeds without the mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "odp/copy/quiescence.hpp"
#include "odp/invalidation/invalidation_monitor.hpp"
#include "odp/mappings/page_survey.hpp"
#include "odp/pager/fault_scheduler.hpp"
#include "odp/pager/implicit_children.hpp"
#include "odp/pager/memory_pressure.hpp"
#include "odp/pager/page_maker.hpp"
#include "odp/pager/short_faults.hpp"
#include "odp/pins/pin_table.hpp"
#include "odp/regions/child_table.hpp"
#include "odp/regions/counter_cells.hpp"
#include "odp/regions/key_table.hpp"

namespace faultline::odp {

class Pager {
 public:
  struct Parts {
    KeyTable& keys;
    ReaderStripes& readers;
    Quiescence& quiescence;
    PinTable& pins;
    ChildPool& children;
    CounterCells& counters;
    InvalidationMonitor& monitor;
    bool realtime;
    unsigned threads;
  };

  explicit Pager(const Parts& parts);
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;
  ~Pager();

  /// Returns nullptr if all ports are taken.
  [[nodiscard]] FaultRings* open_port() { return scheduler_.open_port(); }
  /// After it returns the pager no longer uses the port. The engine's side must have no more requests.
  void close_port(FaultRings& port);

  [[nodiscard]] BackgroundQueue& background() { return scheduler_.background(); }

  /// Serves a fault of a page or two that is sure to cost little, on the engine's own thread, which waits
  /// for it anyway: no wake-up is needed. Returns true if the pages are resident. Returns false if the fault
  /// has to be queued: a pager thread is working, an invalidation is in progress, the service may take long,
  /// or it failed. Does not wait for any thread.
  [[nodiscard]] bool serve_at_once(const FaultRequest& request);

  /// Call after queueing a request. Cheap if the pager is awake.
  void wake();
  /// Call after a call of the program has ended: requests for its pages wait for that. Without locks.
  void recheck_waiting() {
    if (scheduler_.note_call_end()) wake();
  }
  [[nodiscard]] PageSurveyor& surveyor() { return surveyor_; }
  /// Removes all children of a region that no thread can find any more.
  void drop_children(Region& parent);
  /// Returns when every service that holds the mutex at the call has ended.
  void wait_for_services() { const std::lock_guard lock(mutex_); }
  /// True if pages of files were read from disk lately, so that others may have been reclaimed.
  [[nodiscard]] bool reads_files() const { return maker_.reads_files(); }
  [[nodiscard]] bool is_realtime() const { return is_realtime_.load(std::memory_order_relaxed); }

 private:
  void run();
  void sleep_until_woken(std::unique_lock<PiMutex>& lock);
  [[nodiscard]] bool has_work() const;
  void serve(FaultService& service);
  void populate_away(FaultService& service);
  template <typename Work>
  void without_mutex(bool of_file, Work work);
  void be_realtime(bool realtime) const;
  void page_out_victims();
  [[nodiscard]] bool may_serve_at_once(uint64_t now_ns) const;
  void count_served_at_once(const FaultService& service, uint64_t took_ns);

  const Parts parts_;
  PiMutex mutex_;  ///< guards the members from here to the atomics, except what they mark "any thread"
  FaultScheduler scheduler_;
  PageSurveyor surveyor_;
  ImplicitChildren children_;
  PageMaker maker_;
  ShortFaults short_faults_;
  MemoryPressure pressure_;
  unsigned threads_away_ = 0;  ///< that work without the mutex
  bool leader_sleeps_ = false;

  std::atomic<uint32_t> returning_{0};  ///< threads that wait to retake the mutex
  enum Sleep : uint32_t {
    kAwake,   ///< a leader serves, and looks for work again before it sleeps
    kAsleep,  ///< the leader sleeps
    kAway     ///< the leader is busy with a long service: another thread has to lead
  };
  std::atomic<uint32_t> sleeping_{kAwake};
  std::atomic<uint32_t> standby_{0};  ///< futex that wakes another thread
  std::atomic<bool> stopping_{false};
  std::atomic<bool> is_realtime_{false};
  std::vector<std::thread> threads_;
};

}  // namespace faultline::odp
