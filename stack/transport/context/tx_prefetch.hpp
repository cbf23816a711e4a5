// SPDX-License-Identifier: BSD-3-Clause
// Prefetches the state of the QPs that are served next while others are served. A CPU has some twenty
// cache-line fills in flight and drops prefetches beyond them. Each transmitted packet therefore issues a few
// prefetches, rather than all of a QP's at once. Owner: the core's thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stack/transport/qp/queue_pair.hpp"

namespace faultline::transport {

class TxPrefetch {
 public:
  /// `next` is the ready QP that is served after the current one; the list continues at its next_ready. Each
  /// step needs data from the previous step, so the steps run two QPs apart. One QP apart is not enough: a QP
  /// may send a single packet, which takes less time than a cache miss.
  void advance(QueuePair* next) {
    finish();
    if (next == nullptr) return;
    payload_of_ = next;
    payload_ = next->requester.current;
    payload_end_ = next->send_ring.tail();
    if (payload_end_ - payload_ > kSends) payload_end_ = payload_ + kSends;
    QueuePair* const third = behind(behind(next));
    if (third == nullptr) return;
    sends_of_ = third;
    send_ = third->requester.current;
    send_end_ = third->send_ring.tail();
    if (send_end_ - send_ > kSends) send_end_ = send_ + kSends;
    const QueuePair* const fifth = behind(behind(third));
    if (fifth == nullptr) return;
    lines_of_ = fifth;
    line_ = 0;
  }
  /// Called for each transmitted packet.
  void step() {
    if (line_ != QueuePair::kSendLines) lines_of_->prefetch_to_send(line_++);
    if (send_ != send_end_) {
      // Eight SendProgress entries share a cache line.
      __builtin_prefetch(&sends_of_->progress_at(send_), 1);
      __builtin_prefetch(sends_of_->send_ring.header_at(send_), 1);
      ++send_;
    }
    if (payload_ != payload_end_) payload_of_->prefetch_payload(payload_++);
  }
  /// A QP leaves the ready list or is destroyed: cancels the prefetches that are not issued yet.
  void forget() {
    line_ = QueuePair::kSendLines;
    send_ = send_end_ = payload_ = payload_end_ = 0;
  }

 private:
  static constexpr uint32_t kSends = 16;  // per QP

  static QueuePair* behind(const QueuePair* qp) { return qp == nullptr ? nullptr : qp->next_ready; }
  void finish() {
    while (line_ != QueuePair::kSendLines || send_ != send_end_ || payload_ != payload_end_) step();
  }

  const QueuePair* lines_of_ = nullptr;
  uint32_t line_ = QueuePair::kSendLines;
  QueuePair* sends_of_ = nullptr;
  uint32_t send_ = 0;
  uint32_t send_end_ = 0;
  QueuePair* payload_of_ = nullptr;
  uint32_t payload_ = 0;
  uint32_t payload_end_ = 0;
};

}  // namespace faultline::transport
