// SPDX-License-Identifier: BSD-3-Clause
// UD: one packet a message, no connection, no acknowledgement. IBA vol. 1, 9.8.3. Owner: the core's thread.
#pragma once

#include <cstdint>

#include "stack/transport/qp/context.hpp"

namespace faultline::transport {

class Datagram {
 public:
  explicit Datagram(CoreContext& context) : context_(context) {}

  void send(QueuePair& qp, uint32_t& budget_packets);
  [[nodiscard]] bool has_work(QueuePair& qp) const;

  /// A packet for this QP. True where the frame was parked.
  [[nodiscard]] bool on_packet(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame);
  /// A packet of which other QPs get a copy too: one of them may keep it to wait for a page, true then; with
  /// the others it is lost where one is missing.
  [[nodiscard]] bool on_multicast(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame,
                                  bool may_keep);
  void retry_parked(QueuePair& qp);

  void on_send_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome);
  void on_parked_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome);
  void on_timer(QueuePair& qp);

 private:
  enum class Delivery : uint8_t { done, miss };
  [[nodiscard]] Delivery deliver(QueuePair& qp, const wire::Packet& packet);
  void deliver_copy(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] bool send_one(QueuePair& qp);
  void fail_head(QueuePair& qp, CompletionStatus status);
  void drop_parked_head(QueuePair& qp);

  CoreContext& context_;
};

}  // namespace faultline::transport
