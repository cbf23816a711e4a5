// SPDX-License-Identifier: BSD-3-Clause
// RoCEv2 packets that are right in themselves, and not from whom they should be.
#include "tests/interop/hostile/attacks.hpp"

namespace faultline::hostile {
namespace {

// A stream here takes far fewer PSNs than this: what is drawn from behind it is in nobody's window.
constexpr uint32_t kFarPsns = 1U << 22;

}  // namespace

/// QPN, PSN and rkey are right: only the address is not the peer's.
Bytes Attacks::foreign_to_live_qp() {
  const TargetQp& qp = any_qp();
  const bool answer = qp.service == wire::Service::rc && chance(40);
  const auto opcode = chance(5) ? wire::Opcode::cnp : any_opcode(qp.service, !answer);
  wire::PacketFields fields = fields_for(qp, opcode);
  fields.bth.becn = opcode == wire::Opcode::cnp;
  if (answer) fields.bth.psn = wire::Psn(static_cast<uint32_t>(qp.answer_psn + random(1U << 16)));
  return packet(foreign_path(), fields, 1024);
}

Bytes Attacks::peers_to_no_qp() {
  TargetQp nobody = any_qp();
  do nobody.qpn = static_cast<uint32_t>(2 + random(wire::kMulticastQpn - 2));
  while (facts_.find(nobody.qpn) != nullptr);
  return packet(peers_path(), fields_for(nobody, any_opcode(nobody.service, true)), 1024);
}

Bytes Attacks::peers_wrong_service() {
  const TargetQp& qp = any_qp();
  constexpr std::array kServices{wire::Service::rc, wire::Service::uc, wire::Service::ud, wire::Service::xrc};
  wire::Service other = qp.service;
  while (other == qp.service) other = kServices[random(kServices.size())];
  return packet(peers_path(), fields_for(qp, any_opcode(other, true)), 1024);
}

Bytes Attacks::peers_wrong_pkey() {
  const TargetQp& qp = any_qp();
  wire::PacketFields fields = fields_for(qp, any_opcode(qp.service, true));
  do fields.bth.pkey = static_cast<uint16_t>(random_());
  while ((fields.bth.pkey & wire::kPkeyBaseMask) == (wire::kDefaultPkey & wire::kPkeyBaseMask));
  return packet(peers_path(), fields, 1024);
}

Bytes Attacks::wrong_qkey() {
  const TargetQp& qp = facts_.named("datagrams");
  wire::PacketFields fields = fields_for(qp, wire::Opcode::ud_send_only);
  do fields.deth.qkey = static_cast<uint32_t>(random_());
  while (fields.deth.qkey == facts_.qkey);
  return packet(chance(50) ? peers_path() : foreign_path(), fields, 1024);
}

/// The QPN is known, the PSN is not.
Bytes Attacks::peers_far_request() {
  const TargetQp& qp = facts_.named(chance(50) ? "serves" : "idle");
  wire::PacketFields fields = fields_for(qp, any_opcode(wire::Service::rc, true));
  const auto distance = static_cast<uint32_t>(random(kFarPsns));
  fields.bth.psn =
      wire::Psn(chance(50) ? qp.request_psn + kFarPsns - 1 + distance / 2 : qp.request_psn - 1 - distance);
  return packet(peers_path(), fields, 1024);
}

Bytes Attacks::peers_far_answer() {
  const TargetQp& qp = facts_.named(chance(70) ? "asks" : "idle");
  wire::PacketFields fields = fields_for(qp, any_opcode(wire::Service::rc, false));
  const auto distance = static_cast<uint32_t>(random(kFarPsns));
  fields.bth.psn = wire::Psn(chance(50) ? qp.answer_psn + kFarPsns - 1 + distance / 2
                                        : qp.answer_psn - (1U << 17) - distance / 2);
  return packet(peers_path(), fields, 1024);
}

Bytes Attacks::peers_notification() {
  wire::PacketFields fields = fields_for(facts_.named("asks"), wire::Opcode::cnp);
  fields.bth.becn = true;
  return packet(peers_path(), fields);
}

/// Address, QPN and PSN: nothing in RoCEv2 is_signaled this from the peer. The rkey is a guess.
Bytes Attacks::peers_with_all_known() {
  const TargetQp& qp = facts_.named("victim");
  wire::PacketFields fields = fields_for(qp, wire::Opcode::rc_write_only);
  fields.bth.psn = wire::Psn(qp.request_psn);
  fields.reth = {qp.va, qp.rkey ^ 0x100, 256};
  wire::PathHeader path = peers_path();
  const wire::FrameTemplate header(path);
  Bytes frame(header.frame_bytes(fields.bth.opcode, fields.reth.length_bytes));
  static_cast<void>(header.write_headers(frame, fields, fields.reth.length_bytes));
  frame.resize(header.seal(frame, fields.bth.opcode, fields.reth.length_bytes));
  return frame;
}

}  // namespace faultline::hostile
