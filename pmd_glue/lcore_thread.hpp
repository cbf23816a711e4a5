// SPDX-License-Identifier: BSD-3-Clause
// A thread that does nothing but turn one engine: dedicated progress. Calls from other threads are served
// between its turns.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "odp/memory_domain.hpp"
#include "pmd_glue/engine.hpp"

namespace faultline::glue {

class LcoreThread {
 public:
  /// Both outlive the thread. `cpu` is where it runs; anywhere without.
  LcoreThread(std::string device, Engine& engine, odp::EngineSession& session, std::optional<unsigned> cpu);
  ~LcoreThread() { stop(); }
  LcoreThread(const LcoreThread&) = delete;
  LcoreThread& operator=(const LcoreThread&) = delete;

  /// Runs it on the thread and returns when it has run; on the caller's, once the thread is stopped.
  void call(void (*function)(void*), void* argument);
  /// Ends the thread; what was called before it is served.
  void stop();

 private:
  struct Call {
    void (*function)(void*);
    void* argument;
    std::atomic<bool> done{false};
  };
  void run();
  void serve_call();

  const std::string device_;
  Engine& engine_;
  odp::EngineSession& session_;
  const std::optional<unsigned> cpu_;
  std::atomic<bool> stop_{false};
  std::mutex callers_;
  bool stopped_ = false;  // of callers_
  std::atomic<Call*> mailbox_{nullptr};
  std::thread thread_;
};

}  // namespace faultline::glue
