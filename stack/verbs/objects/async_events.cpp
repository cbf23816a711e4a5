// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/objects/async_events.hpp"

#include <bit>
#include <cerrno>

#include "stack/verbs/objects/objects.hpp"

namespace faultline::verbs {

EventElement element_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return EventElement::cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return EventElement::qp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return EventElement::srq;
    default:
      return EventElement::port_or_device;
  }
}

void AsyncEvents::append(EventSource& source) {
  source.next = nullptr;
  source.queued = true;
  if (tail_ == nullptr)
    head_ = &source;
  else
    tail_->next = &source;
  tail_ = &source;
}

void AsyncEvents::raise(EventSource& source, ibv_event_type type) {
  const std::lock_guard lock(mutex_);
  source.pending |= 1U << static_cast<uint32_t>(type);
  if (source.queued) return;
  if (head_ == nullptr) descriptor_.set();
  append(source);
}

void AsyncEvents::unlink(EventSource& source) {
  if (!source.queued) return;
  EventSource* previous = nullptr;
  for (EventSource* at = head_; at != &source; at = at->next) previous = at;
  (previous == nullptr ? head_ : previous->next) = source.next;
  if (tail_ == &source) tail_ = previous;
  source.queued = false;
}

void AsyncEvents::raise_last(EventSource& source, ibv_event_type type) {
  const std::lock_guard lock(mutex_);
  if (head_ == nullptr) descriptor_.set();
  unlink(source);
  source.pending |= 1U << static_cast<uint32_t>(type);
  append(source);
}

bool AsyncEvents::pop(ibv_async_event& event) {
  const std::lock_guard lock(mutex_);
  if (head_ == nullptr) return false;
  EventSource& source = *head_;
  const uint32_t type = static_cast<uint32_t>(std::countr_zero(source.pending));
  event = source.element;
  event.event_type = static_cast<ibv_event_type>(type);
  source.pending &= ~(1U << type);
  ++source.delivered;
  head_ = source.next;
  if (head_ == nullptr) tail_ = nullptr;
  source.queued = false;
  if (source.pending != 0) append(source);
  if (head_ == nullptr) descriptor_.clear();
  return true;
}

int AsyncEvents::take(ibv_async_event& event) {
  while (!pop(event))
    if (const int error = descriptor_.wait(); error != 0) return error;
  return 0;
}

bool AsyncEvents::would_wait() {
  const std::lock_guard lock(mutex_);
  return head_ == nullptr && descriptor_.blocks();
}

uint32_t AsyncEvents::withdraw(EventSource& source) {
  const std::lock_guard lock(mutex_);
  const bool was_last = source.queued && source.next == nullptr && head_ == &source;
  unlink(source);
  if (was_last) descriptor_.clear();
  source.pending = 0;
  return source.delivered;
}

}  // namespace faultline::verbs
