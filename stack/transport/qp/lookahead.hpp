// SPDX-License-Identifier: BSD-3-Clause
// What the QPs that are served next need is on its way while others are served. A CPU has some twenty lines
// under way at once and drops what it is asked for beyond them: so a few lines are asked for with each packet
// that goes out, and not all of a QP's at once. Owner: the core's thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stack/transport/qp/queue_pair.hpp"

namespace faultline::transport {

class Lookahead {
 public:
  /// `next` is the ready QP that is served after the one that is served now; its list goes on behind it. What
  /// lies between the steps, each found by way of the one before, is two QPs' packets: one may send a packet
  /// only, and that be over sooner than a miss.
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
  /// A packet goes out.
  void step() {
    if (line_ != QueuePair::kSendLines) lines_of_->prefetch_to_send(line_++);
    if (send_ != send_end_) {
      // Eight of what is known of sends are a line.
      __builtin_prefetch(&sends_of_->progress_at(send_), 1);
      __builtin_prefetch(sends_of_->send_ring.header_at(send_), 1);
      ++send_;
    }
    if (payload_ != payload_end_) payload_of_->prefetch_payload(payload_++);
  }
  /// A QP goes: what is not asked for yet will not be.
  void forget() {
    line_ = QueuePair::kSendLines;
    send_ = send_end_ = payload_ = payload_end_ = 0;
  }

 private:
  static constexpr uint32_t kSends = 16;  // of a QP

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
