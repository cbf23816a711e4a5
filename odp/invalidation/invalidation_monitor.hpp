// SPDX-License-Identifier: BSD-3-Clause
// The thread that learns from userfaultfd that the program takes memory away, and stops the engines before
// the program goes on. One a process: a range can be on one userfaultfd only, and two domains may share
// memory.
//
// The kernel keeps the program's thread inside its munmap or madvise until the event is read. So, on an
// event: gate up in every domain, make sure that no engine copies by an older check, only then read, mark the
// pages, gate down. The program's own calls need no gate, since their pages are marked (program_call.hpp).
//
// It also keeps the list of the domains for the program's own calls (program_call.hpp), where there is no
// userfaultfd too.
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

/// What a domain does on events and on calls of the program. Called on the monitor's thread and on threads of
/// the program with all signals blocked; must neither allocate, free nor unmap, nor wait for a lock whose
/// holder does or may take a signal.
class InvalidationSink {
 public:
  virtual ~InvalidationSink() = default;
  [[nodiscard]] virtual Quiescence& quiescence() = 0;
  /// False only where no region has part of the range. Without locks.
  [[nodiscard]] virtual bool touches(uint64_t start, uint64_t end) = 0;
  /// drop: the contents go, the mapping stays; kill: the mapping goes; doom, suspend: it, or its contents,
  /// are about to go, and then they have (bury) or have not (revive); make_copy_on_write: the right to write
  /// goes. False where no region has part of the range.
  virtual bool apply(uint64_t start, uint64_t end, PageEvent event) = 0;
  /// Of the doomed pages in the range those that are not mapped any more are dead.
  virtual void bury_holes(uint64_t start, uint64_t end) = 0;
  /// Lets go of pins in a range of an earlier drop, kill, doom or suspend.
  virtual void release_pins(uint64_t start, uint64_t end) = 0;
  /// The process is about to fork: pages that the kernel will share with the child must be asked for again
  /// before they are written.
  virtual void mark_for_fork() = 0;
  /// Requests that wait for a call of the program may go on. Without locks.
  virtual void call_has_ended() = 0;
  /// The program's own userfaultfd may have memory of the range from now on.
  virtual void note_paged_by_program(uint64_t start, uint64_t end) = 0;
  /// Returns when all faults that are being served, but for those that may take long, have been served.
  virtual void outlast_services() = 0;
  /// A watch that was lifted for a call of the program's could not be set up again.
  virtual void note_unwatched(uint64_t start, uint64_t end) = 0;
};

struct MonitorConfig {
  bool realtime = true;
  UserfaultLevel level = UserfaultLevel::full;  ///< at most this
};

class InvalidationMonitor {
 public:
  static constexpr size_t kMaxSinks = 64;

  /// The process's monitor, made where there is none. Only the first one's wishes count.
  static std::shared_ptr<InvalidationMonitor> instance(const MonitorConfig& config);
  /// In the child of a fork: the parent's monitor, whose thread is not here, is left alone for ever.
  static void forget_in_child();
  InvalidationMonitor(const InvalidationMonitor&) = delete;
  InvalidationMonitor& operator=(const InvalidationMonitor&) = delete;
  ~InvalidationMonitor();

  /// What userfaultfd can do here, and an errno where it is not to be had.
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
  /// False only where no domain has a region in the range. The caller holds a CallGuard. A few loads.
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
  /// While it lives no domain goes. `monitor` is nullptr where there is no domain in this process.
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

  /// False where too many domains are there.
  [[nodiscard]] bool add_sink(InvalidationSink& sink);
  /// After it returns the sink is not called any more.
  void remove_sink(InvalidationSink& sink);

  /// What is watched (WatchBook): nothing where there is no userfaultfd.
  [[nodiscard]] int watch(uint64_t start, uint64_t end) {
    return userfault_error_ == 0 ? book_.watch(start, end) : 0;
  }
  void unwatch(uint64_t start, uint64_t end) {
    if (userfault_error_ == 0) book_.unwatch(start, end);
  }
  /// Watches what a used range holds now; the pager's way to cover holes that were filled later.
  [[nodiscard]] int watch_again(uint64_t start, uint64_t end, bool whole = false) {
    return userfault_error_ == 0 ? book_.watch_again(start, end, whole) : 0;
  }
  /// nullptr where there is no userfaultfd.
  [[nodiscard]] WatchBook* book() { return userfault_error_ == 0 ? &book_ : nullptr; }

  /// True where an event is waiting or being handled.
  [[nodiscard]] bool is_busy() const {
    return thread_.joinable() && (handling_.load(std::memory_order_seq_cst) || userfault_.has_events());
  }
  /// True where one is being handled: as a hint, for what asks is_busy() at its end.
  [[nodiscard]] bool is_handling() const { return handling_.load(std::memory_order_relaxed); }
  /// Returns when all events that were waiting at the call have been handled.
  void settle() const;
  /// Returns when also those have been handled that calls under way are still to cause, and when no call of
  /// the program has part of the range under way: a region that is registered in a place that another
  /// thread's call gives back would lose it to a late event, or outlive it without one. Waits for the
  /// program's threads, so for a second at most.
  void outlast_calls(const AddressRange& range) const;

 private:
  InvalidationMonitor() = default;
  void start(const MonitorConfig& config);
  void run(bool realtime);
  /// Returns how many events it has read.
  size_t handle_events();
  /// Returns the range whose pins are to be released.
  AddressRange dispatch(const uffd_msg& event);

  /// The kernel's calls on our own userfaultfd.
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
  std::atomic<uint64_t> cycles_{0};  ///< of handle_events that have ended
  std::array<std::atomic<InvalidationSink*>, kMaxSinks> sinks_{};
  PiMutex sinks_mutex_;  ///< held while events are handled, and to change sinks_
  int maps_ = -1;        ///< /proc/self/maps
  OwnCalls own_calls_{*this};
  /// The monitor's thread never takes its mutex: the holder may be waiting for that thread inside mmap.
  WatchBook book_{own_calls_};
  std::thread thread_;
};

}  // namespace faultline::odp
