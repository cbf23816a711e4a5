// SPDX-License-Identifier: BSD-3-Clause
// The responder of UC: a message arrives whole and in order or is dropped without notice (IBA 9.8.2). Packets
// that miss a page are parked for a while. Owner: the core's thread.
#pragma once

#include <cstdint>
#include <optional>

#include "stack/transport/context/inbound.hpp"

namespace faultline::transport {

class UnreliableResponder {
 public:
  explicit UnreliableResponder(CoreContext& context) : context_(context) {}

  /// Handles a request of this QP whose ICRC is verified.
  [[nodiscard]] Fate on_request(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame);
  /// Executes parked packets again until one misses.
  void retry_parked(QueuePair& qp);
  void on_parked_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome);
  void on_timer(QueuePair& qp);

 private:
  /// Executes a packet, repeatedly while its pages are served at once; never returns retry.
  [[nodiscard]] Execution execute(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] Execution execute_once(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] Execution receive_send(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] Execution receive_write(QueuePair& qp, const wire::Packet& packet);
  /// Starts a WRITE: its rights and its range. Returns the reason to drop it, if there is one.
  [[nodiscard]] std::optional<DropReason> start_write(QueuePair& qp, const wire::Reth& reth);
  [[nodiscard]] Execution miss(QueuePair& qp, const odp::Target& target, uint64_t va, uint64_t length_bytes);
  [[nodiscard]] Execution drop_message(QueuePair& qp, DropReason reason);
  static void abandon_message(QueuePair& qp);
  void fail(QueuePair& qp);
  void give_up(QueuePair& qp);

  CoreContext& context_;
};

}  // namespace faultline::transport
