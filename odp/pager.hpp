// SPDX-License-Identifier: BSD-3-Clause
// The control thread: makes ranges resident, pins them, publishes their pages and answers the engines.
//
// A request that finds its pages there when its turn comes was served by the one before it: that is how many
// waiters on one range cost one service. Long ranges are served in chunks, in turns, so that none holds up
// the others.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

#include "odp/counter_cells.hpp"
#include "odp/fault_queue.hpp"
#include "odp/invalidation_monitor.hpp"
#include "odp/key_table.hpp"
#include "odp/pin_table.hpp"
#include "odp/quiescence.hpp"

namespace faultline::odp {

[[nodiscard]] uint64_t monotonic_ns();

class Pager {
 public:
  struct Parts {
    KeyTable& keys;
    ReaderStripes& readers;
    Quiescence& quiescence;
    PinTable& pins;
    CounterCells& counters;
    InvalidationMonitor* monitor;  ///< nullptr where there is none
    bool realtime;
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

  /// After something was queued. Cheap where the pager is awake.
  void wake();
  [[nodiscard]] bool is_realtime() const { return is_realtime_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kMaxServices = 256;
  static constexpr size_t kChunkPages = 64;
  /// Pages stay pinned at least this long, for their waiter to use them.
  static constexpr uint64_t kMinResidenceNs = 2'000'000;

  enum class Step : uint8_t { more, done, failed };

  struct Service {
    FaultRequest request;
    SessionPort* port = nullptr;  ///< nullptr: background
    PrefetchWait* wait = nullptr;
    uint64_t queued_at_ns = 0;
    uint64_t started_at_ns = 0;
    uint64_t pages_done = 0;  ///< of the range, from its start
    uint64_t pages_made_resident = 0;
  };

  void run();
  void sleep_until_woken();
  [[nodiscard]] bool has_work() const;
  void let_go_of_closing_ports();
  void admit();
  void serve_all();
  [[nodiscard]] Step serve_chunk(Service& service);
  [[nodiscard]] Step make_resident(Region& region, PageRange chunk, bool write, Service& service);
  [[nodiscard]] size_t begin_faults(Region& region, PageRange pages, bool write);
  void give_up(Region& region, PageRange pages);
  void finish(const Service& service, Step step);
  [[nodiscard]] uint64_t protect_since_ns(uint64_t now_ns) const;
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
  std::array<Service, kMaxServices> services_;
  size_t service_count_ = 0;

  std::atomic<uint32_t> sleeping_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> is_realtime_{false};
  std::thread thread_;
};

}  // namespace faultline::odp
