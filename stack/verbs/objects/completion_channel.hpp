// SPDX-License-Identifier: BSD-3-Clause
// A completion channel: the CQs that have told of completions, in the order in which they did. Each CQ
// carries its own link and a count, so that an event needs no memory and goes with its CQ.
#pragma once

#include <cstdint>
#include <mutex>

#include <infiniband/verbs.h>

#include "stack/verbs/objects/event_descriptor.hpp"
#include "stack/verbs/objects/live_objects.hpp"

namespace faultline::verbs {

struct Cq;

/// A CQ's part in its channel.
struct CompletionEventSource {
  Cq* next = nullptr;
  uint32_t pending = 0;
  uint32_t delivered = 0;  ///< events handed out: destroy waits until as many are acknowledged
  bool queued = false;
};

class CompletionChannel : public ibv_comp_channel {
 public:
  /// 0 or an errno.
  [[nodiscard]] int open() { return descriptor_.open(); }
  [[nodiscard]] int descriptor() const { return descriptor_.number(); }

  /// One more event of a CQ. Any thread; never blocks on a reader.
  void raise(Cq& cq);
  /// The CQ of the oldest event; nullptr where there is none.
  [[nodiscard]] Cq* pop();
  /// As EventDescriptor::wait.
  [[nodiscard]] int wait() const { return descriptor_.wait(); }
  /// Forgets what the CQ has pending; returns how many of its events were handed out.
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
