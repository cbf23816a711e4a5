// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/trouble/injected_packets.hpp"

#include <algorithm>

namespace faultline::glue {
namespace {

constexpr uint8_t kSequenceNak = wire::kAethNak | static_cast<uint8_t>(wire::NakCode::psn_sequence_error);

}  // namespace

void InjectedPackets::add_cnps(const wire::PathHeader& from_peer, uint32_t qpn, uint32_t count) {
  Waiting cnp{.path = from_peer, .count = count};
  cnp.fields.bth.opcode = wire::Opcode::cnp;
  cnp.fields.bth.becn = true;
  cnp.fields.bth.destination_qpn = qpn;
  waiting_.push_back(cnp);
}

void InjectedPackets::refuse(const wire::Packet& request, uint32_t qpn, uint64_t object, uint8_t syndrome) {
  Waiting answer{.path = wire::reversed(wire::path_of(request)), .is_answer = true, .object = object};
  answer.fields.bth.opcode = wire::in_service(wire::Opcode::rc_acknowledge, request.info->service);
  answer.fields.bth.destination_qpn = qpn;
  answer.fields.bth.psn = request.bth.psn;
  answer.fields.aeth.syndrome = syndrome;
  waiting_.push_back(answer);
  if (syndrome != kSequenceNak) refused_.insert_or_assign(object, request.bth.psn);
}

bool InjectedPackets::discards(const transport::Core& core, uint32_t qpn, uint64_t object, wire::Psn psn) {
  // Sent again before its answer could arrive.
  if (std::ranges::any_of(waiting_, [&](const Waiting& one) {
        return one.is_answer && one.object == object && one.fields.bth.psn == psn;
      }))
    return true;
  const auto refused = refused_.find(object);
  if (refused == refused_.end()) return false;
  const int32_t behind = psn.distance_from(refused->second);
  // A request that was sent twice may be answered though its second packet is refused: it never comes again.
  const std::optional<wire::Psn> first = core.first_unanswered(qpn);
  const bool is_answered = !first || *first > refused->second;
  if (behind > 0 && behind < kMostInFlight && !is_answered) return true;
  refused_.erase(refused);
  return false;
}

InjectedPackets::Arrival InjectedPackets::arrival_of(const Waiting& waiting, const transport::Core& core) {
  if (!waiting.is_answer) return Arrival::now;
  const std::optional<wire::Psn> first = core.first_unanswered(waiting.fields.bth.destination_qpn);
  if (!first || *first > waiting.fields.bth.psn) return Arrival::never;
  return *first == waiting.fields.bth.psn ? Arrival::now : Arrival::later;
}

std::optional<wire::Psn> InjectedPackets::refused_here(uint32_t qpn) const {
  const auto found = std::ranges::find(refused_here_, qpn, &Refused::qpn);
  if (found == refused_here_.end()) return std::nullopt;
  return found->psn;
}

InjectedPackets::Arrival InjectedPackets::turn_of(const Refused& refused, const transport::Core& core) {
  const std::optional<wire::Psn> next = core.next_request(refused.qpn);
  if (!next || *next > refused.psn) return Arrival::never;
  return *next == refused.psn ? Arrival::now : Arrival::later;
}

void InjectedPackets::refuse_due(transport::Core& core, TimeNs now) {
  std::erase_if(refused_here_, [&](const Refused& one) {
    const Arrival turn = turn_of(one, core);
    if (turn != Arrival::now) return turn == Arrival::never;
    return core.refuse_request(one.qpn, one.syndrome, now);
  });
}

bool InjectedPackets::has_work(const transport::Core& core) const {
  return has_packets() || std::ranges::any_of(refused_here_, [&](const Refused& one) {
           return turn_of(one, core) == Arrival::now;
         });
}

size_t InjectedPackets::take(const transport::Core& core, std::span<uint8_t> frame) {
  std::erase_if(waiting_, [&](const Waiting& one) { return arrival_of(one, core) == Arrival::never; });
  const auto next = std::ranges::find_if(
      waiting_, [&](const Waiting& one) { return arrival_of(one, core) == Arrival::now; });
  if (next == waiting_.end()) return 0;
  const wire::FrameTemplate from_peer(next->path);
  uint8_t* const payload = from_peer.write_headers(frame, next->fields, 0);
  const size_t length_bytes = payload == nullptr ? 0 : from_peer.seal(frame, payload, 0);
  if (--next->count == 0 || length_bytes == 0) waiting_.erase(next);
  return length_bytes;
}

}  // namespace faultline::glue
