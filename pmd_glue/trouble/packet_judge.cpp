// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/trouble/packet_judge.hpp"

#include "stack/wire/mad/mad.hpp"
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

/// Adds the action to what the link does to the frame.
void apply(const trouble::Action& action, size_t frame_bytes, chaos::Verdict& verdict) {
  constexpr uint32_t kBitsPerByte = 8;
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
    case trouble::Action::Kind::mark:
      verdict.mark = true;
      return;
    case trouble::Action::Kind::delay:
      verdict.delay_ns += action.duration_ns;
      return;
    default:
      return;
  }
}

}  // namespace

trouble::Object PacketJudge::object_of(const wire::Packet& packet) {
  uint32_t qpn = packet.bth.destination_qpn;
  if (direction_ == Direction::out)
    qpn = packet.info->has(wire::kDeth) ? packet.deth().source_qpn
                                        : core_->qpn_of_peer(packet.destination_gid(), qpn);
  return director_.known_object(trouble::ObjectKind::qp, device_, qpn);
}

void PacketJudge::amend(std::span<const uint8_t> frame, chaos::Verdict& verdict) {
  if (director_.is_link_down(device_)) {
    verdict.drop = true;
    return;
  }
  wire::Packet packet;
  if (wire::parse(frame, packet, wire::kIpChecksumVerified | wire::kUdpChecksumVerified) !=
      wire::ParseError::none)
    return;
  name_ = direction_ == Direction::out ? "out " : "in ";
  name_ += name_of(packet);
  const trouble::Action* const action = director_.decide({.kind = trouble::EventKind::packet,
                                                          .name = name_,
                                                          .object = object_of(packet),
                                                          .bytes = packet.payload_bytes});
  if (action != nullptr) apply(*action, frame.size(), verdict);
}

}  // namespace faultline::glue
