// SPDX-License-Identifier: BSD-3-Clause
// A completion channel: a queue of the CQs with completion events, oldest first. Each CQ embeds its own list
// link and count. An event therefore needs no memory and is removed with its CQ.
#pragma once

#include <cstdint>
#include <mutex>

#include <infiniband/verbs.h>

#include "stack/verbs/objects/event_descriptor.hpp"
#include "stack/verbs/objects/live_objects.hpp"

namespace faultline::verbs {

struct Cq;

/// A CQ's entry in its channel.
struct CompletionEventSource {
  Cq* next = nullptr;
  uint32_t pending = 0;
  uint32_t delivered = 0;  ///< events returned; destroy waits until all are acknowledged
  bool queued = false;
};

class CompletionChannel : public ibv_comp_channel {
 public:
  /// Returns 0 or an errno.
  [[nodiscard]] int open() { return descriptor_.open(); }
  [[nodiscard]] int descriptor() const { return descriptor_.number(); }

  /// Queues one event for a CQ. Any thread; never blocks on a reader.
  void raise(Cq& cq);
  /// Takes the oldest event and returns its CQ, or nullptr if there is none.
  [[nodiscard]] Cq* pop();
  /// As EventDescriptor::wait.
  [[nodiscard]] int wait() const { return descriptor_.wait(); }
  /// Discards the CQ's pending events; returns how many of its events were delivered.
  [[nodiscard]] uint32_t withdraw(Cq& cq);

  void add_reference();
  void drop_reference();
  [[nodiscard]] bool referenced();

 private:
  void append(Cq& cq);

  std::mutex mutex_;
  Cq* head_ = nullptr;
  Cq* tail_ = nullptr;
  EventDescriptor descriptor_;
  const LiveObject live_{static_cast<ibv_comp_channel*>(this), ObjectKind::channel};
};

}  // namespace faultline::verbs
