// SPDX-License-Identifier: BSD-3-Clause
// The one background thread of a process. It drives inline engines while the program does not (it sits in
// recv() on a socket, or computes), so that ARP, ACKs and the peer's requests are served, and it brings lost
// links up again.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace faultline::glue {

class Device;

class Housekeeper {
 public:
  [[nodiscard]] static Housekeeper& instance();
  void add(Device& device);
  /// When it returns, the device is left alone.
  void remove(Device& device);

 private:
  Housekeeper() = default;
  void run();
  [[nodiscard]] bool serve_devices();

  std::mutex mutex_;  // held while devices are served
  std::condition_variable wake_;
  std::vector<Device*> devices_;
  std::thread thread_;
  bool stop_ = false;
};

}  // namespace faultline::glue
