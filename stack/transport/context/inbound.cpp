// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/context/inbound.hpp"

namespace faultline::transport {

void complete_inbound(CoreContext& context, QueuePair& qp, const wire::Packet& packet,
                      CompletionOpcode opcode, uint32_t bytes) {
  Completion completion;
  completion.byte_length = bytes;
  completion.source_qpn = qp.attributes.destination_qpn;
  completion.opcode = opcode;
  completion.solicited = packet.bth.solicited ? 1 : 0;
  if (packet.info->has(wire::kImmDt)) {
    completion.flags = kWithImm;
    completion.immediate_or_rkey = packet.immediate();
  } else if (packet.info->has(wire::kIeth)) {
    completion.flags = kWithInvalidate;
    completion.immediate_or_rkey = packet.invalidate_rkey();
  }
  context.complete_receive(qp, completion);
}

CompletionStatus refuse_receive(CoreContext& context, QueuePair& qp) {
  const std::span<const Sge> sges = qp.receive.sges;
  const bool is_made = sges.size() == 1 && sges.front().lkey == kMadeToFailKey;
  CoreContext::blame(qp, is_made ? status::FailureCause::by_scenario : status::FailureCause::receive_memory);
  const auto status =
      is_made ? static_cast<CompletionStatus>(sges.front().va) : CompletionStatus::local_protection;
  fail_receive(context, qp, status);
  return status;
}

void fail_receive(CoreContext& context, QueuePair& qp, CompletionStatus status) {
  Completion completion;
  completion.status = status;
  completion.vendor_error = static_cast<uint32_t>(qp.failure.cause);
  completion.opcode = CompletionOpcode::recv;
  context.complete_receive(qp, completion);
}

}  // namespace faultline::transport
