// SPDX-License-Identifier: BSD-3-Clause
// A descriptor that poll and epoll find readable exactly while a list of events is not empty.
#pragma once

namespace faultline::verbs {

class EventDescriptor {
 public:
  EventDescriptor() = default;
  ~EventDescriptor();
  EventDescriptor(const EventDescriptor&) = delete;
  EventDescriptor& operator=(const EventDescriptor&) = delete;

  /// 0 or an errno.
  [[nodiscard]] int open();
  [[nodiscard]] int number() const { return descriptor_; }

  // Under the lock of the list that it tells of; neither blocks.
  void set();    ///< the list was empty
  void clear();  ///< the list is empty again

  /// False where the program made it O_NONBLOCK.
  [[nodiscard]] bool blocks() const;
  /// Waits until it is readable, without the lock: 0, or an errno; EAGAIN at once where the program made it
  /// O_NONBLOCK.
  [[nodiscard]] int wait() const;

 private:
  int descriptor_ = -1;
};

}  // namespace faultline::verbs
