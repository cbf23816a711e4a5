// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/trouble/packet_judge.hpp"

#include <cassert>

#include "stack/wire/link/address_text.hpp"
#include "stack/wire/mad/mad.hpp"
#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::glue {
namespace {

std::string_view name_of(wire::CmAttribute attribute) {
  switch (attribute) {
    case wire::CmAttribute::req:
      return "CM.REQ";
    case wire::CmAttribute::mra:
      return "CM.MRA";
    case wire::CmAttribute::rej:
      return "CM.REJ";
    case wire::CmAttribute::rep:
      return "CM.REP";
    case wire::CmAttribute::rtu:
      return "CM.RTU";
    case wire::CmAttribute::dreq:
      return "CM.DREQ";
    case wire::CmAttribute::drep:
      return "CM.DREP";
    case wire::CmAttribute::sidr_req:
      return "CM.SIDR_REQ";
    case wire::CmAttribute::sidr_rep:
      return "CM.SIDR_REP";
  }
  return "CM.UNKNOWN";
}

/// Messages of the connection manager have names of their own.
std::string_view name_of(const wire::Packet& packet) {
  wire::CmMad mad;
  if (packet.info->has(wire::kDeth) && packet.bth.destination_qpn == wire::kManagementQpn &&
      wire::CmMad::parse(packet.payload(), mad) == wire::MadError::none)
    return name_of(mad.attribute());
  return packet.info->name;
}

/// A request that its responder answers with an acknowledgement or a NAK.
bool takes_answer(const wire::OpcodeInfo& info) {
  return info.request && (info.service == wire::Service::rc || info.service == wire::Service::xrc);
}

}  // namespace

uint32_t PacketJudge::local_qpn(const wire::Packet& packet) const {
  if (direction_ == Direction::in) return packet.bth.destination_qpn;
  if (packet.info->has(wire::kDeth)) return packet.deth().source_qpn;
  return core_->qpn_of_peer(packet.destination_gid(), packet.bth.destination_qpn);
}

void PacketJudge::inject(const trouble::Action& action, const wire::Packet& packet, uint32_t qpn,
                         const trouble::Event& event) {
  assert(injected_ != nullptr);  // Director::may_inject
  if (action.kind == trouble::Action::Kind::inject_cnp) {
    const wire::PathHeader path = wire::path_of(packet);
    return injected_->add_cnps(direction_ == Direction::in ? path : wire::reversed(path), qpn,
                               static_cast<uint32_t>(action.amount));
  }
  const uint64_t syndrome = action.kind == trouble::Action::Kind::inject_rnr
                                ? wire::kAethRnrNak | action.amount
                                : uint64_t{wire::kAethNak} | action.number;
  if (direction_ == Direction::in)
    injected_->refuse_here(qpn, packet.bth.psn, static_cast<uint8_t>(syndrome));
  else
    injected_->refuse(packet, qpn, event.object.key(), static_cast<uint8_t>(syndrome));
}

bool PacketJudge::is_refusable(const wire::Packet& packet, uint32_t qpn) const {
  if (injected_ == nullptr || !takes_answer(*packet.info)) return false;
  if (direction_ == Direction::out) return true;
  const std::optional<wire::Psn> next = core_->next_request(qpn);
  if (!next || injected_->refused_here(qpn)) return false;
  const int32_t ahead = packet.bth.psn.distance_from(*next);
  return ahead >= 0 && ahead < InjectedPackets::kMostInFlight;
}

bool PacketJudge::is_discarded(const wire::Packet& packet, uint32_t qpn, const trouble::Event& event) const {
  if (injected_ == nullptr || !takes_answer(*packet.info)) return false;
  if (direction_ == Direction::in) return injected_->refused_here(qpn) == packet.bth.psn;
  return injected_->discards(*core_, qpn, event.object.key(), packet.bth.psn);
}

void PacketJudge::apply(const trouble::PacketFate& fate, const wire::Packet& packet, uint32_t qpn,
                        size_t frame_bytes, const trouble::Event& event, chaos::Verdict& verdict) {
  constexpr uint32_t kBitsPerByte = 8;
  const trouble::Action& action = *fate.action;
  switch (action.kind) {
    case trouble::Action::Kind::lose:
      verdict.drop = true;
      return;
    case trouble::Action::Kind::duplicate:
      verdict.duplicate = true;
      return;
    case trouble::Action::Kind::corrupt:
      // The last byte before the ICRC: the receiver finds it by the ICRC alone.
      verdict.corrupt = true;
      verdict.bit = static_cast<uint32_t>((frame_bytes - wire::kIcrcBytes - 1) * kBitsPerByte);
      return;
    case trouble::Action::Kind::corrupt_payload:
      verdict.change_payload = true;
      return;
    case trouble::Action::Kind::mark:
      verdict.mark = true;
      return;
    case trouble::Action::Kind::delay:
      verdict.delay_ns += action.duration_ns + fate.jitter_ns;
      return;
    case trouble::Action::Kind::reorder:
      verdict.behind = static_cast<uint32_t>(action.amount);
      return;
    case trouble::Action::Kind::inject_cnp:
      return inject(action, packet, qpn, event);
    case trouble::Action::Kind::inject_rnr:
    case trouble::Action::Kind::inject_nak:
      verdict.drop = true;
      return inject(action, packet, qpn, event);
    default:
      return;
  }
}

void PacketJudge::amend(std::span<const uint8_t> frame, uint64_t now_ns, chaos::Verdict& verdict) {
  if (director_.is_link_down(device_)) {
    verdict.drop = true;
    return;
  }
  wire::Packet packet;
  if (wire::parse(frame, packet, wire::kIpChecksumVerified | wire::kUdpChecksumVerified) !=
      wire::ParseError::none)
    return;
  const bool is_outbound = direction_ == Direction::out;
  name_ = is_outbound ? "out " : "in ";
  name_ += name_of(packet);
  peer_ = wire::text_of(is_outbound ? packet.destination_gid() : packet.source_gid());
  const uint32_t qpn = local_qpn(packet);
  trouble::Event event{.kind = trouble::EventKind::packet,
                       .name = name_,
                       .object = director_.known_object(trouble::ObjectKind::qp, device_, qpn),
                       .bytes = packet.payload_bytes,
                       .peer = peer_,
                       .is_request = is_refusable(packet, qpn)};
  if (!is_outbound && packet.info->request && packet.info->has(wire::kReth)) {
    event.region = packet.reth().rkey;
    event.va = packet.reth().va;
  }
  if (is_discarded(packet, qpn, event)) {
    verdict.drop = true;
    return;
  }
  const trouble::PacketFate fate = director_.decide_packet(event, is_outbound, frame.size(), now_ns);
  if (fate.action != nullptr) apply(fate, packet, qpn, frame.size(), event, verdict);
  if (fate.passage.is_lost) verdict.drop = true;
  verdict.delay_ns += fate.passage.delay_ns;
}

}  // namespace faultline::glue
