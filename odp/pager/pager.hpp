// SPDX-License-Identifier: BSD-3-Clause
// The control threads: make ranges resident, pin them, publish their pages and answer the engines.
//
// One thread at a time leads: it holds the mutex, takes requests and serves them. Before work that may take
// long (swap, a file, much fresh memory) it releases the mutex, and the next request wakes another thread. A
// slow page thus delays only its own request. Only making memory resident proceeds without the mutex.
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
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "odp/copy/quiescence.hpp"
#include "odp/invalidation/call_ledger.hpp"
#include "odp/invalidation/invalidation_monitor.hpp"
#include "odp/mappings/mapping_list.hpp"
#include "odp/mappings/page_survey.hpp"
#include "odp/pager/fault_queue.hpp"
#include "odp/pager/memory_pressure.hpp"
#include "odp/pager/swap_space.hpp"
#include "odp/pins/pin_table.hpp"
#include "odp/regions/address_space.hpp"
#include "odp/regions/child_table.hpp"
#include "odp/regions/counter_cells.hpp"
#include "odp/regions/key_table.hpp"
#include "stack/base/clock.hpp"

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
  [[nodiscard]] FaultRings* open_port();
  /// After it returns the pager no longer uses the port. The engine's side must have no more requests.
  void close_port(FaultRings& port);

  [[nodiscard]] BackgroundQueue& background() { return background_; }

  /// Serves a fault of a page or two that is sure to cost little, on the engine's own thread, which waits
  /// for it anyway: no wake-up is needed. Returns true if the pages are resident. Returns false if the fault
  /// has to be queued: a pager thread is working, an invalidation is in progress, the service may take long,
  /// or it failed. Does not wait for any thread.
  [[nodiscard]] bool serve_at_once(const FaultRequest& request);

  /// Call after queueing a request. Cheap if the pager is awake.
  void wake();
  /// Call after a call of the program has ended: requests for its pages wait for that. Without locks.
  void look_at_waiting_again() {
    if (waits_for_calls_.load(std::memory_order_seq_cst) == 0) return;
    call_ended_.store(true, std::memory_order_seq_cst);
    wake();
  }
  [[nodiscard]] PageSurveyor& surveyor() { return surveyor_; }
  /// Removes all children of a region that no thread can find any more.
  void drop_children(Region& parent);
  /// Returns when every service that holds the mutex at the call has ended.
  void outlast_services() { const std::lock_guard lock(mutex_); }
  /// True if pages of files were read from disk lately, so that others may have been reclaimed.
  [[nodiscard]] bool reads_files() const { return reads_files_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool is_realtime() const { return is_realtime_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kMaxServices = 256;
  static constexpr size_t kChunkPages = PageSurveyor::kMaxPages;
  /// Minimum time that pages stay pinned, for their waiter to use them.
  static constexpr uint64_t kMinResidenceNs = 2'000'000;
  /// Pages that cannot be pinned count as resident for this long.
  static constexpr uint64_t kUnpinnedNs = 250'000'000;
  /// For this long after a page had to be read from its file, the kernel may be reclaiming others.
  static constexpr uint64_t kFileReadsNs = 1'000'000'000;

  enum class Step : uint8_t {
    more,     ///< continue in the next turn
    away,     ///< execute the plan, without the mutex
    waiting,  ///< for a thread that serves these pages, for a call of the program, or for a free slow thread
    done,
    failed
  };

  /// A chunk of a service that is being made resident.
  struct Plan {
    PageRange pages;  ///< of the region
    uint64_t address = 0;
    uint64_t length_bytes = 0;
    size_t begun = 0;
    size_t chunk_pages = 0;  ///< pages by which the service advances when the plan is done
    bool write = false;
    bool of_file = false;
    bool of_program = false;  ///< the program serves its own userfaultfd there
    FaultKind kind = FaultKind::present;
    int error = 0;
    [[nodiscard]] bool overlaps(const Plan& other) const {
      return address < other.address + other.length_bytes && other.address < address + length_bytes;
    }
  };

  struct Service {
    FaultRequest request;
    FaultRings* port = nullptr;  ///< nullptr: background
    PrefetchWait* wait = nullptr;
    uint64_t queued_at_ns = 0;
    uint64_t started_at_ns = 0;
    uint64_t pages_done = 0;  ///< of the range, from its start
    uint64_t pages_made_resident = 0;
    FaultKind kind = FaultKind::present;
    Plan plan;
    bool away = false;       ///< a thread populates its plan without the mutex
    bool waiting = false;    ///< until any thread returns
    bool abandoned = false;  ///< its port is closed
    bool told = false;       ///< its waiter has been answered already
    bool at_once = false;    ///< on its engine's own thread
    bool failed_before = false;
  };

  void run();
  void sleep_until_woken(std::unique_lock<PiMutex>& lock);
  void expire_unpinned();
  [[nodiscard]] bool has_work() const;
  void let_go_of_closing_ports();
  void admit();
  [[nodiscard]] Service* place_for(const FaultRequest& request);
  [[nodiscard]] Service* next_service();
  void serve(Service& service);
  void serve_away(Service& service);
  [[nodiscard]] size_t services_away() const;
  void be_realtime(bool realtime) const;
  /// Finds the region of a chunk; for an implicit region the child, which may have to be created.
  [[nodiscard]] Step find_chunk(const Service& service, Region*& region, PageRange& chunk,
                                size_t& total_pages);
  [[nodiscard]] Region* make_child(Region& parent, uint64_t address);
  [[nodiscard]] bool needs_child(const Service& service) const;
  [[nodiscard]] bool may_make_child(const FaultRequest& request, uint64_t address) const;
  template <typename Work>
  void without_mutex(bool of_file, Work work);
  [[nodiscard]] static bool may_read_beside(const Plan& away, const Plan& plan);
  [[nodiscard]] Step serve_chunk(Service& service);
  [[nodiscard]] Step publish_present(Region& region, PageRange chunk, Service& service);
  [[nodiscard]] Step plan_chunk(Region& region, PageRange chunk, bool write, Plan& plan);
  [[nodiscard]] bool is_in_call(const AddressRange& range);
  void populate(Plan& plan) const;
  [[nodiscard]] bool populate_by_touch(Region& region, Plan& plan);
  [[nodiscard]] bool populate_by_pin(Region& region, Plan& plan);
  void note_if_huge(Plan& plan, uint64_t took_ns) const;
  int watch_again(const Region& region, const Plan& plan);
  [[nodiscard]] bool is_paged_by_program(Region& region, const Plan& plan);
  /// The part of a request that an engine may serve itself, or `more`.
  [[nodiscard]] Step serve_short(const FaultRequest& request, Service& service);
  /// `may_wait` is false on an engine's thread, for which the monitor may be waiting.
  [[nodiscard]] Step publish(Region& region, Service& service, bool may_wait = true);
  [[nodiscard]] size_t begin_faults(Region& region, PageRange pages, bool write);
  void give_up(Region& region, PageRange pages);
  void finish(Service& service, Step step);
  void tell(Service& service, Step step);
  /// True if an earlier request, which was answered and is being read ahead, contains this request's range.
  [[nodiscard]] bool is_read_ahead(const FaultRequest& request) const;
  [[nodiscard]] uint64_t protect_since_ns(uint64_t now_ns) const;
  /// Reclaims children without a page and, if all places are taken, those unused for longest.
  void reclaim_children(bool make_room);
  [[nodiscard]] bool is_in_service(const Region& region) const;
  void take_away(std::span<Child* const> children);
  void page_out_victims();
  template <typename Call>
  void for_each_port(Call call) const {
    for (const std::atomic<FaultRings*>& slot : ports_) {
      FaultRings* port = slot.load(std::memory_order_acquire);
      if (port == nullptr) return;
      call(*port);
    }
  }

  const Parts parts_;
  /// Allocated at first use, reused by later engines, freed with the pager.
  std::array<std::atomic<FaultRings*>, Quiescence::kMaxSessions> ports_{};
  std::mutex ports_mutex_;  ///< open and close only
  BackgroundQueue background_;
  PiMutex mutex_;  ///< guards the members from here to the atomics
  std::array<Service, kMaxServices> services_;
  std::array<uint16_t, kMaxServices> in_use_{};  ///< indices of services_, the first service_count_
  std::array<uint16_t, kMaxServices> free_{};    ///< the other indices
  size_t service_count_ = 0;
  size_t cursor_ = 0;
  unsigned picks_ = 0;
  PageSurveyor surveyor_;
  SwapSpace swap_space_;
  unsigned long_in_a_row_ = 0;     ///< faults that took an engine too long
  uint64_t at_once_again_ns_ = 0;  ///< until then engines leave their faults to the threads
  MemoryPressure pressure_;
  uint64_t next_expiry_ns_ = 0;
  uint64_t file_read_at_ns_ = 0;
  unsigned away_count_ = 0;
  bool leader_sleeps_ = false;
  PinTable::Victims victims_;

  std::atomic<uint32_t> returning_{0};  ///< threads that wait to retake the mutex
  enum Sleep : uint32_t {
    kAwake,   ///< a leader serves, and looks for work again before it sleeps
    kAsleep,  ///< the leader sleeps
    kAway     ///< the leader is busy with a long service: another thread has to lead
  };
  std::atomic<uint32_t> sleeping_{kAwake};
  std::atomic<uint32_t> standby_{0};          ///< futex that wakes another thread
  std::atomic<uint32_t> waits_for_calls_{0};  ///< 1: a service waits for a call of the program
  std::atomic<bool> call_ended_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> is_realtime_{false};
  std::atomic<bool> reads_files_{false};
  std::vector<std::thread> threads_;
};

}  // namespace faultline::odp
