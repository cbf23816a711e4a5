// SPDX-License-Identifier: BSD-3-Clause
// The asynchronous events of one context. Each source (QP, CQ, SRQ, the port, the device) carries its own
// link and one bit per event type, so that an event needs no memory, is never lost, and goes with its object.
#pragma once

#include <cstdint>
#include <mutex>

#include <infiniband/verbs.h>

#include "stack/verbs/objects/event_descriptor.hpp"

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
  /// 0 or an errno.
  [[nodiscard]] int open() { return descriptor_.open(); }
  [[nodiscard]] int descriptor() const { return descriptor_.number(); }

  /// Any thread; never blocks on a reader.
  void raise(EventSource& source, ibv_event_type type);
  /// As raise, behind all that is pending: the last event of a port tells its state.
  void raise_last(EventSource& source, ibv_event_type type);
  /// Whether take would block.
  [[nodiscard]] bool would_wait();
  /// Blocks unless the descriptor is O_NONBLOCK. 0 or an errno.
  [[nodiscard]] int take(ibv_async_event& event);
  /// Forgets what the source has pending; returns how many of its events were handed out.
  [[nodiscard]] uint32_t withdraw(EventSource& source);

 private:
  [[nodiscard]] bool pop(ibv_async_event& event);
  void append(EventSource& source);
  void unlink(EventSource& source);

  std::mutex mutex_;
  EventSource* head_ = nullptr;
  EventSource* tail_ = nullptr;
  EventDescriptor descriptor_;
};

}  // namespace faultline::verbs
