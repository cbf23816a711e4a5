// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/context/park_pool.hpp"

#include <cassert>

namespace faultline::transport {

ParkPool::ParkPool(const CoreConfig& config, Port& port, CoreCounters& counters, TimerWheel& timers)
    : config_(config), port_(port), counters_(counters), timers_(timers), pool_(config.park_packets_total) {
  for (ParkedFrame& parked : pool_) {
    parked.next = free_;
    free_ = &parked;
  }
}

bool ParkPool::park(QueuePair& qp, const RxFrame& frame) {
  ResponderState& responder = qp.responder;
  if (free_ == nullptr || responder.parked >= config_.park_packets_per_qp) return false;
  // The last quarter of the pool is reserved for the first parked packet of each QP, the one that waits for
  // the page itself.
  if (responder.parked_head != nullptr &&
      parked_ >= config_.park_packets_total - config_.park_packets_total / 4)
    return false;
  ++parked_;
  ParkedFrame* parked = free_;
  free_ = parked->next;
  parked->frame = frame;
  parked->next = nullptr;
  if (responder.parked_tail == nullptr)
    responder.parked_head = parked;
  else
    responder.parked_tail->next = parked;
  responder.parked_tail = parked;
  ++responder.parked;
  ++counters_.packets_parked;
  return true;
}

void ParkPool::unpark_head(QueuePair& qp) {
  ResponderState& responder = qp.responder;
  ParkedFrame* head = responder.parked_head;
  assert(head != nullptr);
  --parked_;
  responder.parked_head = head->next;
  if (responder.parked_head == nullptr) responder.parked_tail = nullptr;
  --responder.parked;
  head->next = free_;
  free_ = head;
}

void ParkPool::release_parked(QueuePair& qp) {
  ResponderState& responder = qp.responder;
  while (responder.parked_head != nullptr) {
    RxFrame frame = responder.parked_head->frame;
    unpark_head(qp);
    ++counters_.drops[static_cast<size_t>(DropReason::parked_flushed)];
    port_.release({&frame, 1});
  }
  responder.parked_retry = false;
  responder.park_deadline_ns = kNever;
  responder.dropped_after_park = false;
  ++responder.park_generation;
}

bool ParkPool::hold(QueuePair& qp, wire::Psn psn, const RxFrame& frame, TimeNs now_ns) {
  ResponderState& responder = qp.responder;
  if (free_ == nullptr || responder.held >= config_.reorder_packets_per_qp) return false;
  ParkedFrame** link = &responder.held_head;
  // Packets mostly arrive in order: append after the last one.
  if (responder.held_tail != nullptr && responder.held_tail->psn < psn) link = &responder.held_tail->next;
  while (*link != nullptr && (*link)->psn < psn) link = &(*link)->next;
  if (*link != nullptr && (*link)->psn == psn) return false;
  ParkedFrame* held = free_;
  free_ = held->next;
  held->frame = frame;
  held->psn = psn;
  held->next = *link;
  *link = held;
  if (held->next == nullptr) responder.held_tail = held;
  if (responder.held++ == 0) {
    responder.held_deadline_ns = now_ns + config_.reorder_deadline_ns;
    timers_.arm(qp.timer, responder.held_deadline_ns, now_ns);
  }
  ++counters_.packets_held;
  return true;
}

RxFrame ParkPool::take_held_head(QueuePair& qp, TimeNs now_ns) {
  ResponderState& responder = qp.responder;
  ParkedFrame* head = responder.held_head;
  assert(head != nullptr);
  responder.held_head = head->next;
  --responder.held;
  if (responder.held_head == nullptr) {
    responder.held_tail = nullptr;
    responder.held_deadline_ns = kNever;
  } else {
    // One gap is closed: restart the timer for the next.
    responder.held_deadline_ns = now_ns + config_.reorder_deadline_ns;
  }
  head->next = free_;
  free_ = head;
  return head->frame;
}

void ParkPool::release_held(QueuePair& qp) {
  while (qp.responder.held_head != nullptr) {
    RxFrame frame = take_held_head(qp, 0);
    port_.release({&frame, 1});
  }
}

}  // namespace faultline::transport
