// SPDX-License-Identifier: BSD-3-Clause
// A thread that does nothing but turn one engine: dedicated progress. Calls from other threads are served
// between its turns. When nothing happens it sleeps, until something is posted, another core has frames for
// it, or frames come to a port that can tell; a port that cannot is looked at now and then.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "odp/regions/memory_domain.hpp"
#include "pmd_glue/engine/engine.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

class LcoreThread final : private transport::DoorbellListener {
 public:
  /// Both outlive the thread. `cpu` is where it runs; anywhere without. `frames` is readable while frames
  /// wait; -1: nothing is.
  LcoreThread(std::string device, Engine& engine, odp::EngineSession& session, std::optional<unsigned> cpu,
              int frames);
  ~LcoreThread() override { stop(); }
  LcoreThread(const LcoreThread&) = delete;
  LcoreThread& operator=(const LcoreThread&) = delete;

  /// Runs it on the thread and returns when it has run; on the caller's, once the thread is stopped.
  void call(void (*function)(void*), void* argument);
  /// Ends the thread; what was called before it is served.
  void stop();
  /// Ends the thread at its next turn, and does not wait for it: the process ends.
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
  /// True where the port told of frames.
  [[nodiscard]] bool nap(TimeNs longest, bool frames_tell);

  const std::string device_;
  Engine& engine_;
  odp::EngineSession& session_;
  const std::optional<unsigned> cpu_;
  const int frames_;
  const UniqueFd event_;  ///< ends a nap
  std::atomic<bool> asleep_{false};
  bool listening_ = false;  ///< the thread's
  std::atomic<bool> stop_{false};
  std::mutex callers_;
  bool stopped_ = false;  // of callers_
  std::atomic<Call*> mailbox_{nullptr};
  std::thread thread_;
};

}  // namespace faultline::glue
