// SPDX-License-Identifier: BSD-3-Clause
// The control threads: make ranges resident, pin them, publish their pages and answer the engines.
//
// One of them at a time leads: it holds the mutex, takes requests and serves them. Before it does what may
// take long (swap, a file, much fresh memory) it lets go, and the next request wakes another one: a slow page
// delays nobody's but its own. Only making memory resident goes on without the mutex.
//
// A request that finds its pages there when its turn comes was served by the one before it, and one whose
// pages someone is at waits for that: that is how many waiters on one range cost one service. Long ranges are
// served in chunks, in turns, so that none holds up the others; what stalls a peer goes first, advice last.
// After the first chunk the waiter is told to go on, and the rest is read ahead of it: copying and making
// resident overlap, and what it asks for next is mostly there.
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

  /// nullptr where all are taken.
  [[nodiscard]] SessionPort* open_port();
  /// After it returns the pager has let go of the port. The engine's side has no more requests.
  void close_port(SessionPort& port);

  [[nodiscard]] BackgroundQueue& background() { return background_; }

  /// A fault of a page or two that is sure to cost little, served on the engine's own thread, which waits for
  /// it anyway: nobody has to be woken. False where it has to go through the queue: someone is at work here,
  /// an invalidation is under way, or what it takes may be long. Waits for nobody.
  [[nodiscard]] bool serve_at_once(const FaultRequest& request, Outcome& outcome);

  /// After something was queued. Cheap where the pager is awake.
  void wake();
  /// After a call of the program has ended: requests for its pages wait for that. Without locks.
  void look_at_waiting_again() {
    if (waits_for_calls_.load(std::memory_order_seq_cst) == 0) return;
    call_ended_.store(true, std::memory_order_seq_cst);
    wake();
  }
  [[nodiscard]] PageSurveyor& surveyor() { return surveyor_; }
  /// Takes all children of a region that nobody can find any more away.
  void drop_children(Region& parent);
  /// Returns when what is served with the mutex held has been served.
  void outlast_services() { const std::lock_guard lock(mutex_); }
  /// Pages of files come from their disk these days, so others may have gone there.
  [[nodiscard]] bool reads_files() const { return reads_files_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool is_realtime() const { return is_realtime_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kMaxServices = 256;
  static constexpr size_t kChunkPages = PageSurveyor::kMaxPages;
  /// Pages stay pinned at least this long, for their waiter to use them.
  static constexpr uint64_t kMinResidenceNs = 2'000'000;
  /// Pages that cannot be pinned count as resident for this long.
  static constexpr uint64_t kUnpinnedNs = 250'000'000;
  /// So long after a page had to be read from its file, others may be on their way out of memory.
  static constexpr uint64_t kFileReadsNs = 1'000'000'000;

  enum class Step : uint8_t {
    more,     ///< go on in the next turn
    away,     ///< what the plan says, without the mutex
    waiting,  ///< for a thread that is at these pages, for a call of the program, or all slow threads are
              ///< busy
    done,
    failed
  };

  /// A chunk of a service that is being made resident.
  struct Plan {
    PageRange pages;  ///< of the region
    uint64_t address = 0;
    uint64_t length_bytes = 0;
    size_t begun = 0;
    size_t chunk_pages = 0;  ///< by which the service goes on when it is done
    bool write = false;
    bool of_file = false;
    bool of_program = false;  ///< who serves its own userfaultfd there
    FaultKind kind = FaultKind::present;
    int error = 0;
    [[nodiscard]] bool overlaps(const Plan& other) const {
      return address < other.address + other.length_bytes && other.address < address + length_bytes;
    }
  };

  struct Service {
    FaultRequest request;
    SessionPort* port = nullptr;  ///< nullptr: background
    PrefetchWait* wait = nullptr;
    uint64_t queued_at_ns = 0;
    uint64_t started_at_ns = 0;
    uint64_t pages_done = 0;  ///< of the range, from its start
    uint64_t pages_made_resident = 0;
    FaultKind kind = FaultKind::present;
    Plan plan;
    bool away = false;       ///< a thread populates its plan without the mutex
    bool waiting = false;    ///< until any thread comes back
    bool abandoned = false;  ///< its port is gone
    bool told = false;       ///< its waiter goes on already
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
  /// The region of a chunk, for an implicit one the child, which may have to be made.
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
  /// What an engine may do itself of a request, or `more`.
  [[nodiscard]] Step serve_short(const FaultRequest& request, Service& service);
  /// `may_wait` is false on an engine's thread, for which the monitor may be waiting.
  [[nodiscard]] Step publish(Region& region, Service& service, bool may_wait = true);
  [[nodiscard]] size_t begin_faults(Region& region, PageRange pages, bool write);
  void give_up(Region& region, PageRange pages);
  void finish(Service& service, Step step);
  void tell(Service& service, Step step);
  /// True where an earlier request's rest, which is being read ahead, begins with this one's first page.
  [[nodiscard]] bool is_read_ahead(const FaultRequest& request) const;
  [[nodiscard]] uint64_t protect_since_ns(uint64_t now_ns) const;
  /// Children without a page, and, where all places are taken, those that were not used for longest.
  void reclaim_children(bool make_room);
  [[nodiscard]] bool is_in_service(const Region& region) const;
  void take_away(std::span<Child* const> children);
  void page_out_victims();
  template <typename Call>
  void for_each_port(Call call) const {
    for (const std::atomic<SessionPort*>& slot : ports_) {
      SessionPort* port = slot.load(std::memory_order_acquire);
      if (port == nullptr) return;
      call(*port);
    }
  }

  const Parts parts_;
  /// Made when first opened, kept for the next engine, freed with the pager.
  std::array<std::atomic<SessionPort*>, Quiescence::kMaxSessions> ports_{};
  std::mutex ports_mutex_;  ///< open and close only
  BackgroundQueue background_;
  PiMutex mutex_;  ///< what follows, up to the atomics
  std::array<Service, kMaxServices> services_;
  std::array<uint16_t, kMaxServices> in_use_{};  ///< places of services_, the first service_count_
  std::array<uint16_t, kMaxServices> free_{};    ///< and the others
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

  std::atomic<uint32_t> returning_{0};  ///< threads that want the mutex back
  enum Sleep : uint32_t {
    kAwake,   ///< a leader serves, and will look for work again before it sleeps
    kAsleep,  ///< the leader sleeps
    kAway     ///< the leader is at something long: another thread has to lead
  };
  std::atomic<uint32_t> sleeping_{kAwake};
  std::atomic<uint32_t> standby_{0};          ///< rung to wake another thread
  std::atomic<uint32_t> waits_for_calls_{0};  ///< some service waits for a call of the program
  std::atomic<bool> call_ended_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> is_realtime_{false};
  std::atomic<bool> reads_files_{false};
  std::vector<std::thread> threads_;
};

}  // namespace faultline::odp
