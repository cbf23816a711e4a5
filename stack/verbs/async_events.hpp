// SPDX-License-Identifier: BSD-3-Clause
// The asynchronous events of one context. Each QP and CQ carries its own link and one bit per event type, so
// that an event needs no memory, is never lost, and goes with its object. The descriptor is a semaphore that
// counts events; it may count one too many after an object took its events away, which the reader skips.
#pragma once

#include <cstdint>
#include <mutex>

#include <infiniband/verbs.h>

namespace faultline::verbs {

struct EventSource {
  ibv_async_event element{};  ///< what get_async_event hands out, but for the type
  EventSource* next = nullptr;
  uint32_t pending = 0;    ///< bit per ibv_event_type
  uint32_t delivered = 0;  ///< events handed out: destroy waits until as many are acknowledged
  bool queued = false;
};

class AsyncEvents {
 public:
  AsyncEvents() = default;
  ~AsyncEvents();
  AsyncEvents(const AsyncEvents&) = delete;
  AsyncEvents& operator=(const AsyncEvents&) = delete;

  /// 0 or an errno.
  [[nodiscard]] int open();
  [[nodiscard]] int descriptor() const { return descriptor_; }

  /// Any thread; never blocks on a reader.
  void raise(EventSource& source, ibv_event_type type);
  /// Blocks unless the descriptor is O_NONBLOCK. 0 or an errno.
  [[nodiscard]] int take(ibv_async_event& event);
  /// Forgets what the source has pending; returns how many of its events were handed out.
  [[nodiscard]] uint32_t withdraw(EventSource& source);

 private:
  [[nodiscard]] bool pop(ibv_async_event& event);
  void append(EventSource& source);

  std::mutex mutex_;
  EventSource* head_ = nullptr;
  EventSource* tail_ = nullptr;
  int descriptor_ = -1;
};

}  // namespace faultline::verbs
