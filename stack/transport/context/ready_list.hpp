// SPDX-License-Identifier: BSD-3-Clause
// The QPs of a core that may have something to send, in the order in which they are served. Owner: the core's
// thread.
#pragma once

#include <cstdint>

#include "stack/transport/context/tx_prefetch.hpp"
#include "stack/transport/qp/queue_pair.hpp"

namespace faultline::transport {

class ReadyList {
 public:
  ReadyList() = default;
  ReadyList(const ReadyList&) = delete;
  ReadyList& operator=(const ReadyList&) = delete;

  /// Appends a QP, unless it is on the list.
  void add(QueuePair& qp) {
    if (!qp.ready) append(qp);
  }
  /// Removes the first QP; nullptr if there is none.
  [[nodiscard]] QueuePair* pop();
  void remove(QueuePair& qp);
  [[nodiscard]] bool empty() const { return head_ == nullptr; }
  [[nodiscard]] uint32_t size() const { return size_; }
  /// Call for each transmitted packet.
  void prefetch_step() { lookahead_.step(); }

 private:
  void append(QueuePair& qp);

  TxPrefetch lookahead_;
  QueuePair* head_ = nullptr;
  QueuePair** end_ = &head_;  ///< the next QP is put here
  uint32_t size_ = 0;
};

}  // namespace faultline::transport
