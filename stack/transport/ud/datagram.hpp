// SPDX-License-Identifier: BSD-3-Clause
// UD: each message is one packet, without connection or acknowledgement. IBA vol. 1, 9.8.3. Owner: the core's
// thread.
#pragma once

#include <cstdint>

#include "stack/transport/context/inbound.hpp"

namespace faultline::transport {

class Datagram {
 public:
  explicit Datagram(CoreContext& context) : context_(context) {}

  void send(QueuePair& qp, uint32_t& budget_packets);
  [[nodiscard]] bool has_work(QueuePair& qp) const;

  /// Delivers a packet to this QP. Returns true if the frame was parked.
  [[nodiscard]] bool on_packet(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame);
  /// Delivers a copy of a multicast packet to this QP. One member QP may park the frame (`may_keep`) until a
  /// page is resident; then the result is true. The other members lose the packet if a page is missing.
  [[nodiscard]] bool on_multicast(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame,
                                  bool may_keep);
  void retry_parked(QueuePair& qp);

  void on_send_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome);
  void on_parked_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome);
  void on_timer(QueuePair& qp);

 private:
  /// Copies GRH and payload into the next receive, repeatedly while its pages are served at once. Never
  /// returns retry.
  [[nodiscard]] Execution deliver(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] Execution deliver_once(QueuePair& qp, const wire::Packet& packet);
  void deliver_copy(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] bool send_one(QueuePair& qp);
  [[nodiscard]] bool hold_send(QueuePair& qp, odp::Outcome outcome, odp::Key lkey, const SgeSpan& stop);
  void complete(QueuePair& qp, const SendWqe& wqe);
  void fail(QueuePair& qp, CompletionStatus status);
  void fail_head(QueuePair& qp, CompletionStatus status);
  void drop_parked_head(QueuePair& qp);

  CoreContext& context_;
  /// Fields of the current packet, as in Requester.
  wire::PacketFields fields_;
};

}  // namespace faultline::transport
