// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/context/ready_list.hpp"

#include <utility>

namespace faultline::transport {

void ReadyList::append(QueuePair& qp) {
  qp.ready = true;
  *end_ = &qp;
  end_ = &qp.next_ready;
  ++size_;
}

QueuePair* ReadyList::pop() {
  QueuePair* const qp = head_;
  if (qp == nullptr) return nullptr;
  head_ = std::exchange(qp->next_ready, nullptr);
  if (head_ == nullptr) end_ = &head_;
  lookahead_.advance(head_);
  qp->ready = false;
  --size_;
  return qp;
}

void ReadyList::remove(QueuePair& qp) {
  if (!qp.ready) return;
  lookahead_.forget();
  QueuePair** link = &head_;
  while (*link != &qp) link = &(*link)->next_ready;
  *link = std::exchange(qp.next_ready, nullptr);
  if (end_ == &qp.next_ready) end_ = link;
  qp.ready = false;
  --size_;
}

}  // namespace faultline::transport
