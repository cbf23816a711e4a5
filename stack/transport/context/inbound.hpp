// SPDX-License-Identifier: BSD-3-Clause
// What the responders of connected QPs share: rules for inbound packets, and the completion of a receive.
#pragma once

#include <cassert>
#include <cstdint>

#include "stack/transport/context/context.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::transport {

/// Disposition of a packet's frame.
enum class Fate : uint8_t { consumed, parked };

/// Result of one attempt to execute a packet.
enum class Execution : uint8_t {
  done,
  miss,  ///< a page is absent: the packet waits
  retry  ///< a page has become resident: execute the packet again
};

/// Rebuilds the view of a frame that was parsed and verified on arrival; this is cheaper than storing it.
[[nodiscard]] inline wire::Packet parse_again(const RxFrame& frame) {
  wire::Packet packet;
  const wire::ParseError error =
      wire::parse({frame.data, frame.length_bytes}, packet, static_cast<uint8_t>(frame.rx_checks));
  assert(error == wire::ParseError::none);
  static_cast<void>(error);
  return packet;
}

/// True if the payload has a length that the path MTU permits at the packet's place (IBA 9.7.4.1.6).
[[nodiscard]] inline bool length_allowed(const QueuePair& qp, const wire::Packet& packet) {
  if (packet.info->payload == wire::PayloadRule::full_mtu) return packet.payload_bytes == qp.mtu_bytes;
  return packet.payload_bytes <= qp.mtu_bytes;
}

/// True if a packet of a WRITE adds up to the RETH's length, together with those before it (IBA 9.7.4.1.6).
[[nodiscard]] inline bool adds_up(const ResponderState& state, const wire::Packet& packet) {
  return packet.info->ends_message() ? packet.payload_bytes == state.write_left_bytes
                                     : packet.payload_bytes < state.write_left_bytes;
}

/// Completes the receive that a SEND or a WRITE with immediate has taken.
void complete_inbound(CoreContext& context, QueuePair& qp, const wire::Packet& packet,
                      CompletionOpcode opcode, uint32_t bytes);

/// Counts a WRITE of the peer, whose last packet is executed.
inline void count_remote_write(QueuePair& qp) {
  qp.counted->add(CountedOperation::remote_rdma_write, CompletionStatus::success,
                  qp.responder.write_total_bytes);
}

/// Completes the receive that is taken with an error.
void fail_receive(CoreContext& context, QueuePair& qp, CompletionStatus status);

/// Completes the receive that is taken with an error, since its memory refuses a message: the program's
/// mistake, or a scenario's wish. Blames the QP. Returns the status.
CompletionStatus refuse_receive(CoreContext& context, QueuePair& qp);

}  // namespace faultline::transport
