// SPDX-License-Identifier: BSD-3-Clause
// The thread that learns from userfaultfd that the program removes memory, and stops the engines before the
// program proceeds. One per process: a range can be on one userfaultfd only, and two domains may share
// memory.
//
// The kernel blocks the program's thread in its munmap or madvise until the event is read. On an event the
// monitor therefore raises the gate in every domain and makes sure that no engine copies by an older check.
// Only then it reads the event, marks the pages and lowers the gate. The program's own calls need no gate,
// since they mark their pages (program_call.hpp).
//
// The monitor also keeps the list of the domains for the program's own calls (program_call.hpp), even
// without userfaultfd.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "odp/copy/quiescence.hpp"
#include "odp/invalidation/call_ledger.hpp"
#include "odp/invalidation/watch_book.hpp"
#include "odp/mappings/mapping_split.hpp"
#include "odp/mappings/userfault.hpp"
#include "odp/regions/page_map.hpp"
#include "stack/base/pi_mutex.hpp"

namespace faultline::odp {

/// A domain's reaction to events and to calls of the program. Called on the monitor's thread, and on threads
/// of the program with all signals blocked. Must not allocate, free or unmap, nor wait for a lock whose
/// holder may take a signal.
class InvalidationSink {
 public:
  virtual ~InvalidationSink() = default;
  [[nodiscard]] virtual Quiescence& quiescence() = 0;
  /// False only if no region overlaps the range. Without locks.
  [[nodiscard]] virtual bool touches(uint64_t start, uint64_t end) = 0;
  /// Applies an event to the regions in a range; false if no region overlaps the range.
  /// - drop: the contents are removed, the mapping stays;
  /// - kill: the mapping is removed;
  /// - doom, suspend: a call that removes the mapping, or its contents, begins; bury: it has removed them;
  ///   revive: it has not;
  /// - make_copy_on_write: the right to write is removed.
  virtual bool apply(uint64_t start, uint64_t end, PageEvent event) = 0;
  /// Marks dead the doomed pages in the range that are no longer mapped.
  virtual void mark_unmapped_dead(uint64_t start, uint64_t end) = 0;
  /// Releases pins in a range of an earlier drop, kill, doom or suspend.
  virtual void release_pins(uint64_t start, uint64_t end) = 0;
  /// Call before the process forks: pages that the kernel will share with the child need a new fault before
  /// a write.
  virtual void mark_for_fork() = 0;
  /// Requests that wait for a call of the program may proceed. Without locks.
  virtual void call_has_ended() = 0;
  /// The program's own userfaultfd may hold memory of the range from now on.
  virtual void note_paged_by_program(uint64_t start, uint64_t end) = 0;
  /// Returns when all faults being served have been served, except those that may take long.
  virtual void wait_for_services() = 0;
  /// A watch that was lifted for a call of the program could not be restored.
  virtual void note_unwatched(uint64_t start, uint64_t end) = 0;
};

struct MonitorConfig {
  bool realtime = true;
  UserfaultLevel level = UserfaultLevel::full;  ///< upper limit
};

class InvalidationMonitor {
 public:
  static constexpr size_t kMaxSinks = 64;

  /// Returns this process's monitor (a forked child has its own); creates it if there is none. Only the first
  /// caller's `config` is used.
  static std::shared_ptr<InvalidationMonitor> instance(const MonitorConfig& config);
  InvalidationMonitor(const InvalidationMonitor&) = delete;
  InvalidationMonitor& operator=(const InvalidationMonitor&) = delete;
  ~InvalidationMonitor();

  /// What userfaultfd supports here, and an errno if it is unavailable.
  [[nodiscard]] UserfaultLevel level() const { return userfault_.level(); }
  [[nodiscard]] int userfault_error() const { return userfault_error_; }

  /// Calls call(sink) for each domain. The caller holds a CallGuard, or is the monitor.
  template <typename Call>
  void for_each_sink(Call call) {
    for (std::atomic<InvalidationSink*>& slot : sinks_) {
      InvalidationSink* sink = slot.load(std::memory_order_acquire);
      if (sink != nullptr) call(*sink);
    }
  }
  /// False only if no domain has a region in the range. The caller holds a CallGuard. Costs a few loads.
  [[nodiscard]] bool touches(uint64_t start, uint64_t end) {
    bool any = false;
    for_each_sink([&](InvalidationSink& sink) { any = any || sink.touches(start, end); });
    return any;
  }
  /// Calls call(sink) for each domain that may have part of the range. The caller holds a CallGuard.
  template <typename Call>
  void for_each_touched(uint64_t start, uint64_t end, Call call) {
    for_each_sink([&](InvalidationSink& sink) {
      if (sink.touches(start, end)) call(sink);
    });
  }
  /// Keeps every domain alive. `monitor` is nullptr if this process has no domain.
  class CallGuard {
   public:
    CallGuard() : monitor(enter()) {}
    CallGuard(const CallGuard&) = delete;
    CallGuard& operator=(const CallGuard&) = delete;
    ~CallGuard();
    InvalidationMonitor* const monitor;

   private:
    [[nodiscard]] static InvalidationMonitor* enter();
  };

  /// False if there are too many domains.
  [[nodiscard]] bool add_sink(InvalidationSink& sink);
  /// After it returns the sink is not called any more.
  void remove_sink(InvalidationSink& sink);

  /// Watches a range (WatchBook); without userfaultfd does nothing and returns 0.
  [[nodiscard]] int watch(uint64_t start, uint64_t end) {
    return userfault_error_ == 0 ? book_.watch(start, end) : 0;
  }
  void unwatch(uint64_t start, uint64_t end) {
    if (userfault_error_ == 0) book_.unwatch(start, end);
  }
  /// Watches what a used range holds now; the pager thereby covers holes that were filled later.
  [[nodiscard]] int watch_again(uint64_t start, uint64_t end, bool whole = false) {
    return userfault_error_ == 0 ? book_.watch_again(start, end, whole) : 0;
  }
  /// Returns nullptr if there is no userfaultfd.
  [[nodiscard]] WatchBook* book() { return userfault_error_ == 0 ? &book_ : nullptr; }

  /// True if an event is waiting or being handled.
  [[nodiscard]] bool is_busy() const {
    return thread_.joinable() && (handling_.load(std::memory_order_seq_cst) || userfault_.has_events());
  }
  /// True if an event is being handled. A hint, for callers that check is_busy() at their end.
  [[nodiscard]] bool is_handling() const { return handling_.load(std::memory_order_relaxed); }
  /// Returns when all events that were waiting at the call have been handled.
  void settle() const;
  /// As settle(), and waits for events that calls in progress will still cause, and until no call of the
  /// program has part of the range in progress. Otherwise a region registered in a range that another
  /// thread's call releases would lose it to a late event, or outlive it without an event. Waits for the
  /// program's threads, so at most one second.
  void wait_for_calls(const AddressRange& range) const;

 private:
  InvalidationMonitor() = default;
  void start(const MonitorConfig& config);
  void run(bool realtime);
  /// Returns how many events it has read.
  size_t handle_events();
  /// Returns the range whose pins are to be released.
  AddressRange dispatch(const uffd_msg& event);

  /// The kernel's calls on the monitor's userfaultfd.
  class OwnCalls final : public WatchCalls {
   public:
    explicit OwnCalls(const InvalidationMonitor& monitor) : monitor_(monitor) {}
    [[nodiscard]] int watch(uint64_t start, uint64_t end) override {
      return monitor_.userfault_.watch(start, end);
    }
    [[nodiscard]] bool would_stay_split(uint64_t address, uint64_t start, uint64_t end,
                                        MappingFacts& mapping) override {
      return split_.would_stay(address, start, end, mapping);
    }
    void prepare_split(const MappingFacts& mapping, uint64_t start, uint64_t end) override {
      split_.prepare(monitor_.userfault_, mapping, start, end);
    }
    void unwatch(uint64_t start, uint64_t end) override { monitor_.userfault_.unwatch(start, end); }
    [[nodiscard]] bool find_mapping_from(uint64_t address, MappingFacts& facts) override;

   private:
    const InvalidationMonitor& monitor_;
    const MappingSplit split_;
  };

  Userfault userfault_;
  int userfault_error_ = 0;
  int stop_fd_ = -1;
  std::atomic<bool> handling_{false};
  std::atomic<uint64_t> cycles_{0};  ///< completed handle_events() calls
  std::array<std::atomic<InvalidationSink*>, kMaxSinks> sinks_{};
  PiMutex sinks_mutex_;  ///< held while events are handled, and to change sinks_
  int maps_ = -1;        ///< /proc/self/maps
  OwnCalls own_calls_{*this};
  /// The monitor's thread never takes the book's mutex: the mutex's holder may be waiting for that thread
  /// inside mmap.
  WatchBook book_{own_calls_};
  std::thread thread_;
};

}  // namespace faultline::odp
