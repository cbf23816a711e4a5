// SPDX-License-Identifier: BSD-3-Clause
// The thread that learns from userfaultfd that the program takes memory away, and stops the engines before
// the program goes on. One a process: a range can be on one userfaultfd only, and two domains may share
// memory.
//
// The kernel keeps the program's thread inside its munmap or madvise until the event is read. So, on an
// event: gate up in every domain, wait until every engine has seen it, only then read, mark the pages, gate
// down.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "odp/pi_mutex.hpp"
#include "odp/quiescence.hpp"
#include "odp/userfault.hpp"

namespace faultline::odp {

/// What a domain does on events. Called on the monitor's thread; must neither allocate, free nor unmap, nor
/// wait for a lock whose holder does.
class InvalidationSink {
 public:
  virtual ~InvalidationSink() = default;
  [[nodiscard]] virtual Quiescence& quiescence() = 0;
  /// The contents go, the mapping stays.
  virtual void drop_pages(uint64_t start, uint64_t end) = 0;
  /// The mapping is gone.
  virtual void kill_pages(uint64_t start, uint64_t end) = 0;
  /// The process has forked.
  virtual void make_copy_on_write() = 0;
  /// After the gate is down: lets go of pins in a range of an earlier drop or kill.
  virtual void release_pins(uint64_t start, uint64_t end) = 0;
};

class InvalidationMonitor {
 public:
  static constexpr size_t kMaxSinks = 64;

  /// The process's monitor, started where there is none. nullptr with an errno where userfaultfd is not to be
  /// had.
  static std::shared_ptr<InvalidationMonitor> instance(bool realtime, int& error);
  InvalidationMonitor(const InvalidationMonitor&) = delete;
  InvalidationMonitor& operator=(const InvalidationMonitor&) = delete;
  ~InvalidationMonitor();

  /// False where too many domains are there.
  [[nodiscard]] bool add_sink(InvalidationSink& sink);
  /// After it returns the sink is not called any more.
  void remove_sink(InvalidationSink& sink);

  /// Puts a page-aligned range under watch, once per call of unwatch. 0 or an errno (Userfault::watch): the
  /// range counts as used in either case.
  [[nodiscard]] int watch(uint64_t start, uint64_t end);
  void unwatch(uint64_t start, uint64_t end);
  /// Watches again what a counted range holds now; the pager's way to cover holes that were filled later.
  [[nodiscard]] int watch_again(uint64_t start, uint64_t end) { return userfault_.watch(start, end); }

  /// True where an event is waiting or being handled.
  [[nodiscard]] bool is_busy() const {
    return handling_.load(std::memory_order_seq_cst) || userfault_.has_events();
  }
  /// Returns when all events that were waiting at the call have been handled.
  void settle() const;

 private:
  InvalidationMonitor() = default;
  void run(bool realtime);
  void handle_events();
  void dispatch(const uffd_msg& event);

  template <typename Call>
  void for_each_sink(Call call) {
    for (std::atomic<InvalidationSink*>& slot : sinks_) {
      InvalidationSink* sink = slot.load(std::memory_order_acquire);
      if (sink != nullptr) call(*sink);
    }
  }

  Userfault userfault_;
  int stop_fd_ = -1;
  std::atomic<bool> handling_{false};
  std::atomic<uint64_t> cycles_{0};  ///< of handle_events that have ended
  std::array<std::atomic<InvalidationSink*>, kMaxSinks> sinks_{};
  PiMutex sinks_mutex_;  ///< held while events are handled, and to change sinks_
  std::mutex ranges_mutex_;
  RangeCounts ranges_;
  std::thread thread_;
};

}  // namespace faultline::odp
