// SPDX-License-Identifier: BSD-3-Clause
// Records of what the core does, for `faultline run --record`. Each function requires that the context has a
// recorder, except note_recorded(). They are calls, so that the code of the data path stays short without a
// recorder.
#pragma once

#include "stack/record/record.hpp"
#include "stack/transport/context/context.hpp"
#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::transport {

/// The packet that was just built.
void record_sent(CoreContext& context, const QueuePair& qp, const wire::PacketFields& fields,
                 uint32_t payload_bytes);
[[gnu::always_inline]] inline void note_recorded(CoreContext& context, const QueuePair& qp,
                                                 const wire::PacketFields& fields, uint32_t payload_bytes) {
  if (context.recorder != nullptr) [[unlikely]]
    record_sent(context, qp, fields, payload_bytes);
}

/// The record of a received packet, which is added before the packet has its effects.
record::Record& record_received(CoreContext& context, uint32_t qpn, const wire::Packet& packet);
/// `reason` is a DropReason, or record::kParseErrors plus a wire::ParseError; then the packet may be
/// unreadable.
void record_dropped(CoreContext& context, const wire::Packet& packet, uint8_t reason);

/// A request packet; with the work request, if the packet is its first and sent for the first time.
void record_request(CoreContext& context, const QueuePair& qp, const SendWqe& wqe,
                    const wire::PacketFields& fields, uint32_t payload_bytes, bool starts);

/// At the end of the QP's turn: the work requests that the turn found and did not start, and what they wait
/// for. Of connected QPs.
void record_waiting(CoreContext& context, QueuePair& qp);

void record_fault(CoreContext& context, QueuePair& qp, const odp::FaultRequest& request,
                  const FaultWaiter& waiter, FaultAnswer answer);
void record_fault_end(CoreContext& context, const FaultWaiter& waiter);

/// `before`: the counters before the timer was served, which show what it was.
void record_timer(CoreContext& context, const QueuePair& qp, uint64_t timeouts_before,
                  uint64_t probes_before);
void record_rate(CoreContext& context, const QueuePair& qp, uint64_t rate_bytes_per_s);
/// The QP has got a peer.
void record_connection(CoreContext& context, const QueuePair& qp);

}  // namespace faultline::transport
