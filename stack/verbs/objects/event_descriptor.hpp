// SPDX-License-Identifier: BSD-3-Clause
// A descriptor that poll and epoll report as readable exactly while a list of events is not empty.
#pragma once

namespace faultline::verbs {

class EventDescriptor {
 public:
  EventDescriptor() = default;
  ~EventDescriptor();
  EventDescriptor(const EventDescriptor&) = delete;
  EventDescriptor& operator=(const EventDescriptor&) = delete;

  /// Returns 0 or an errno.
  [[nodiscard]] int open();
  [[nodiscard]] int number() const { return descriptor_; }

  // Call under the lock of the event list. Neither function blocks.
  void set();    ///< the list was empty
  void clear();  ///< the list is empty again

  /// Returns false if the program has set O_NONBLOCK.
  [[nodiscard]] bool blocks() const;
  /// Waits until the descriptor is readable; call without the lock. Returns 0 or an errno; EAGAIN at once if
  /// the program has set O_NONBLOCK.
  [[nodiscard]] int wait() const;

 private:
  int descriptor_ = -1;
};

}  // namespace faultline::verbs
