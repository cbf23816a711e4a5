// SPDX-License-Identifier: BSD-3-Clause
// The one background thread of a process. It drives inline engines while the program does not (it sits in
// recv() on a socket, or computes), so that ARP, ACKs and the peer's requests are served, and it brings lost
// links up again.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include <poll.h>

#include "stack/base/unique_fd.hpp"
#include "stack/transport/core/core.hpp"

namespace faultline::glue {

class Device;

class Housekeeper final : public transport::DoorbellListener {
 public:
  Housekeeper();
  [[nodiscard]] static Housekeeper& instance();
  void add(Device& device);
  /// When it returns, the device is left alone.
  void remove(Device& device);
  /// The process ends: the thread, if there is one, ends at its next round. Waits for nothing.
  static void abandon();
  /// Something was posted while it slept. Any thread.
  void on_doorbell() override;

 private:
  /// Of all devices together.
  struct Rounds {
    bool busy = false;
    bool driven = false;  ///< one at least is the program's to drive
    TimeNs deadline = 0;
  };

  void run();
  [[nodiscard]] Rounds serve_devices();
  void sleep(std::unique_lock<std::mutex>& lock, TimeNs idle_ns);
  void nap(std::unique_lock<std::mutex>& lock, TimeNs longest);
  void wake();     ///< another thread
  void wake_up();  ///< its own

  std::mutex mutex_;  // held while devices are served
  UniqueFd event_;    ///< wakes the thread
  std::atomic<bool> asleep_{false};
  std::vector<Device*> devices_;
  std::vector<pollfd> pollers_;
  std::thread thread_;
  bool stop_ = false;
  std::atomic<bool> abandoned_{false};
};

}  // namespace faultline::glue
