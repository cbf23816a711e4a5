// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/objects/completion_channel.hpp"

#include "stack/verbs/objects/objects.hpp"

namespace faultline::verbs {

void CompletionChannel::append(Cq& cq) {
  cq.completion_events.next = nullptr;
  cq.completion_events.queued = true;
  if (tail_ == nullptr)
    head_ = &cq;
  else
    tail_->completion_events.next = &cq;
  tail_ = &cq;
}

void CompletionChannel::raise(Cq& cq) {
  const std::lock_guard lock(mutex_);
  ++cq.completion_events.pending;
  if (cq.completion_events.queued) return;
  if (head_ == nullptr) descriptor_.set();
  append(cq);
}

Cq* CompletionChannel::pop() {
  const std::lock_guard lock(mutex_);
  if (head_ == nullptr) return nullptr;
  Cq& cq = *head_;
  CompletionEventSource& source = cq.completion_events;
  --source.pending;
  ++source.delivered;
  head_ = source.next;
  if (head_ == nullptr) tail_ = nullptr;
  source.queued = false;
  if (source.pending != 0) append(cq);
  if (head_ == nullptr) descriptor_.clear();
  return &cq;
}

uint32_t CompletionChannel::withdraw(Cq& cq) {
  const std::lock_guard lock(mutex_);
  CompletionEventSource& source = cq.completion_events;
  if (source.queued) {
    Cq* previous = nullptr;
    for (Cq* at = head_; at != &cq; at = at->completion_events.next) previous = at;
    (previous == nullptr ? head_ : previous->completion_events.next) = source.next;
    if (tail_ == &cq) tail_ = previous;
    if (head_ == nullptr) descriptor_.clear();
    source.queued = false;
    source.pending = 0;
  }
  return source.delivered;
}

void CompletionChannel::add_reference() {
  const std::lock_guard lock(mutex_);
  ++refcnt;
}

void CompletionChannel::drop_reference() {
  const std::lock_guard lock(mutex_);
  --refcnt;
}

bool CompletionChannel::referenced() {
  const std::lock_guard lock(mutex_);
  return refcnt != 0;
}

}  // namespace faultline::verbs
