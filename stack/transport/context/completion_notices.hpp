// SPDX-License-Identifier: BSD-3-Clause
// The events of completion channels: which queue's notification is due after completions were pushed. Owner:
// the core's thread.
#pragma once

#include <array>
#include <cstddef>

#include "stack/transport/qp/completion_queue.hpp"
#include "stack/transport/qp/events.hpp"

namespace faultline::transport {

class CompletionNotices {
 public:
  /// `events` may be nullptr: then no event is raised.
  explicit CompletionNotices(EventSink* events) : events_(events) {}

  /// Between these two calls, a queue that seems unarmed is checked once at the end instead of after each
  /// completion. Each check is a read-modify-write.
  void defer() { defers_ = true; }
  void end_deferral(TimeNs now_ns) {
    defers_ = false;
    if (pushed_count_ != 0) ask(now_ns);
  }
  /// Records a completion in a queue that has a channel.
  void note(CompletionQueue& cq, const Completion& completion, TimeNs now_ns);
  /// Raises the moderated events (ibv_modify_cq) that are due.
  void end_moderations(TimeNs now_ns);
  [[nodiscard]] TimeNs next_moderation() const;
  [[nodiscard]] bool has_moderations() const { return moderated_ != nullptr; }
  void forget(const CompletionQueue& gone);

 private:
  struct PushedTo {
    CompletionQueue* cq;
    CompletionQueue::Pushed what;
  };
  void ask(TimeNs now_ns);
  void give(CompletionQueue& cq, const CompletionQueue::Pushed& pushed, TimeNs now_ns);

  EventSink* const events_;
  std::array<PushedTo, 4> pushed_{};  ///< queues with a channel that have unchecked pushes
  size_t pushed_count_ = 0;
  bool defers_ = false;
  CompletionQueue* moderated_ = nullptr;  ///< short list, mostly empty
};

}  // namespace faultline::transport
