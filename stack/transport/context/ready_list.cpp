// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/context/ready_list.hpp"

namespace faultline::transport {

void ReadyList::append(QueuePair& qp) {
  qp.ready = true;
  qp.next_ready = nullptr;
  if (tail_ == nullptr)
    head_ = &qp;
  else
    tail_->next_ready = &qp;
  tail_ = &qp;
  ++size_;
}

QueuePair* ReadyList::pop() {
  QueuePair* qp = head_;
  if (qp == nullptr) return nullptr;
  head_ = qp->next_ready;
  lookahead_.advance(head_);
  if (head_ == nullptr) tail_ = nullptr;
  qp->ready = false;
  --size_;
  return qp;
}

void ReadyList::remove(QueuePair& qp) {
  if (!qp.ready) return;
  lookahead_.forget();
  QueuePair* previous = nullptr;
  QueuePair* at = head_;
  while (at != &qp) {
    previous = at;
    at = at->next_ready;
  }
  (previous == nullptr ? head_ : previous->next_ready) = qp.next_ready;
  if (tail_ == &qp) tail_ = previous;
  qp.ready = false;
  --size_;
}

}  // namespace faultline::transport
