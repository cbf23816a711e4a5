// SPDX-License-Identifier: BSD-3-Clause
// The asynchronous events of one context. Each source (QP, CQ, SRQ, the port, the device) embeds its own list
// link and one bit per event type. An event therefore needs no memory, is never lost, and is removed with its
// object.
#pragma once

#include <cstdint>
#include <mutex>

#include <infiniband/verbs.h>

#include "stack/verbs/objects/event_descriptor.hpp"

namespace faultline::verbs {

struct EventSource {
  ibv_async_event element{};  ///< what get_async_event returns, except for the type
  EventSource* next = nullptr;
  uint32_t pending = 0;    ///< bit per ibv_event_type
  uint32_t delivered = 0;  ///< events returned; destroy waits until all are acknowledged
  bool queued = false;
};

/// What an event concerns, in ibv_async_event::element (ibv_get_async_event(3)).
enum class EventElement : uint8_t { cq, qp, srq, port_or_device };
[[nodiscard]] EventElement element_of(ibv_event_type type);

class AsyncEvents {
 public:
  /// Returns 0 or an errno.
  [[nodiscard]] int open() { return descriptor_.open(); }
  [[nodiscard]] int descriptor() const { return descriptor_.number(); }

  /// Queues an event. Any thread; never blocks on a reader.
  void raise(EventSource& source, ibv_event_type type);
  /// As raise, but appends the event after all pending ones: a port's last event reports its state.
  void raise_last(EventSource& source, ibv_event_type type);
  /// Returns whether take would block.
  [[nodiscard]] bool would_wait();
  /// Takes an event; blocks unless the descriptor is O_NONBLOCK. Returns 0 or an errno.
  [[nodiscard]] int take(ibv_async_event& event);
  /// Discards the source's pending events; returns how many of its events were delivered.
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
