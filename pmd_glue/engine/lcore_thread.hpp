// SPDX-License-Identifier: BSD-3-Clause
// A thread that drives one engine (dedicated progress) and serves calls from other threads between turns. An
// idle thread sleeps until work is posted, another core hands frames over, or the port's descriptor is
// readable. A port without a descriptor is polled at intervals.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "odp/regions/memory_domain.hpp"
#include "pmd_glue/engine/poll_engine.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

class LcoreThread final : private transport::DoorbellListener {
 public:
  /// Both references outlive the thread. `cpu` is the CPU that the thread is pinned to, if any.
  LcoreThread(std::string device, PollEngine& engine, odp::EngineSession& session,
              std::optional<unsigned> cpu);
  ~LcoreThread() override { stop(); }
  LcoreThread(const LcoreThread&) = delete;
  LcoreThread& operator=(const LcoreThread&) = delete;

  /// Runs `function` on the thread and returns after it; on the caller's thread once this thread is stopped.
  void call(void (*function)(void*), void* argument);
  /// Ends the thread, after it has served the calls that were made before.
  void stop();
  /// Ends the thread at its next turn, without a wait: the process ends.
  void abandon();

 private:
  struct Call {
    void (*function)(void*);
    void* argument;
    std::atomic<bool> done{false};
  };
  void run();
  void serve_call();
  void on_doorbell() override;
  void listen();
  void stop_listening();
  /// Sleeps. Returns true if the port's descriptor was readable.
  [[nodiscard]] bool nap(TimeNs longest, bool has_rx_descriptor);

  const std::string device_;
  PollEngine& engine_;
  odp::EngineSession& session_;
  const std::optional<unsigned> cpu_;
  int frames_ = -1;       ///< descriptor that reports frames, while the thread listens; -1: none
  const UniqueFd event_;  ///< wakes the thread
  std::atomic<bool> asleep_{false};
  bool listening_ = false;  ///< only the thread accesses it
  std::atomic<bool> stop_{false};
  std::mutex callers_;
  bool stopped_ = false;  // guarded by callers_
  std::atomic<Call*> mailbox_{nullptr};
  std::thread thread_;
};

}  // namespace faultline::glue
