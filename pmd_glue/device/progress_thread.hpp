// SPDX-License-Identifier: BSD-3-Clause
// The background progress thread of a process. It drives inline engines while the program blocks (in recv()
// on a socket) or computes, so that ARP, ACKs and the peer's requests are served. It also reconnects lost
// links.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include <poll.h>

#include "pmd_glue/device/cpu_contention.hpp"
#include "pmd_glue/device/thread_affinity.hpp"
#include "stack/base/unique_fd.hpp"
#include "stack/transport/core/core.hpp"

namespace faultline::glue {

class RunningDevice;

class ProgressThread final : public transport::DoorbellListener {
 public:
  ProgressThread();
  [[nodiscard]] static ProgressThread& instance();
  void add(RunningDevice& device);
  /// When it returns, the thread no longer accesses the device.
  void remove(RunningDevice& device);
  /// Ends the thread, if there is one, at its next round, because the process ends. Does not wait.
  static void abandon();
  /// Wakes the thread if it sleeps: work was posted. Any thread.
  void on_doorbell() override;

 private:
  /// Result of one round over all devices.
  struct Rounds {
    bool busy = false;
    bool driven = false;  ///< the program drives at least one device
    bool held = false;    ///< the program is in a turn
    bool stream = false;  ///< a wake-up found several frames
    TimeNs deadline = 0;
  };

  void run();
  [[nodiscard]] Rounds serve_devices();
  [[nodiscard]] bool sleep(std::unique_lock<std::mutex>& lock, TimeNs idle_ns, CpuContention& contention);
  [[nodiscard]] Rounds serve_rung_devices();
  [[nodiscard]] bool nap(std::unique_lock<std::mutex>& lock, TimeNs longest);
  void nap_beside_program(std::unique_lock<std::mutex>& lock, TimeNs idle_ns);
  void avoid_program();
  [[nodiscard]] bool are_on_wires() const;
  void watch_switch(const RunningDevice& device);
  void wake();     ///< called by another thread
  void wake_up();  ///< called by the thread itself, after its sleep

  ThreadAffinity affinity_;  // of the progress thread

  std::mutex mutex_;  // held while devices are served
  UniqueFd event_;    ///< wakes the thread
  std::atomic<bool> asleep_{false};
  std::vector<RunningDevice*> devices_;
  std::vector<pollfd> pollers_;
  std::thread thread_;
  bool stop_ = false;
  std::atomic<bool> abandoned_{false};
};

}  // namespace faultline::glue
