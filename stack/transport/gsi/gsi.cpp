// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/gsi/gsi.hpp"

#include <algorithm>
#include <mutex>
#include <new>

#include "stack/transport/context/context.hpp"
#include "stack/transport/context/emit.hpp"
#include "stack/wire/link/link.hpp"
#include "stack/wire/packet/ecn.hpp"
#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::transport {
namespace {

/// Builds the reply address: the reverse path of the packet.
ManagementSource source_of(const wire::Packet& packet) {
  ManagementSource source;
  wire::PathHeader& path = source.reply.path;
  path.source_mac = packet.destination_mac();
  path.destination_mac = packet.source_mac();
  path.source_gid = packet.destination_gid();
  path.destination_gid = packet.source_gid();
  path.traffic_class = static_cast<uint8_t>(packet.traffic_class() & ~wire::kEcnMask);
  path.flow_label = packet.flow_label();
  path.has_vlan = packet.has_vlan;
  path.vlan_tci = packet.vlan_tci;
  source.reply.loopback = path.source_mac == path.destination_mac;
  source.pkey = packet.bth.pkey;
  source.source_qpn = packet.deth().source_qpn;
  return source;
}

}  // namespace

void Gsi::on_packet(const wire::Packet& packet) {
  if (sink_ == nullptr) return context_.count(DropReason::unknown_qpn);
  if (packet.info->service != wire::Service::ud) return context_.count(DropReason::wrong_service);
  if ((packet.bth.pkey & wire::kPkeyBaseMask) != (wire::kDefaultPkey & wire::kPkeyBaseMask))
    return context_.count(DropReason::pkey);
  if (packet.deth().qkey != wire::kManagementQkey) return context_.count(DropReason::qkey);
  if (packet.payload_bytes != wire::kMadBytes) return context_.count(DropReason::payload_rule);
  // A reply would need a multicast source or destination.
  if (wire::is_multicast(packet.destination_gid()) || wire::is_multicast(packet.source_gid()))
    return context_.count(DropReason::source_address);
  ++context_.counters.management_received;
  sink_->on_management(packet.payload().first<wire::kMadBytes>(), source_of(packet), context_.now_ns);
}

bool Gsi::post(const wire::MadBytes& mad, const AddressVector& to, uint16_t pkey) {
  const std::lock_guard guard(lock_);
  const size_t waiting = waiting_.load(std::memory_order_relaxed);
  if (waiting == kMaxWaiting) return false;
  try {
    if (ring_.empty()) ring_.resize(kMaxWaiting);
  } catch (const std::bad_alloc&) {
    return false;
  }
  ring_[(head_ + waiting) % kMaxWaiting] = {mad, to, pkey};
  waiting_.store(waiting + 1, std::memory_order_seq_cst);  // ordered before the read of the listener
  return true;
}

void Gsi::send() {
  while (has_work()) {
    TxFrame* const frame = context_.tx.next();
    if (frame == nullptr) return;
    const std::lock_guard guard(lock_);
    const Outgoing& outgoing = ring_[head_];
    wire::PacketFields fields;
    fields.bth.opcode = wire::Opcode::ud_send_only;
    fields.bth.pkey = outgoing.pkey;
    fields.bth.destination_qpn = wire::kManagementQpn;
    fields.bth.psn = wire::Psn(next_psn_++);
    fields.deth = {wire::kManagementQkey, wire::kManagementQpn};
    const wire::FrameTemplate header(outgoing.to.path, context_.config.wire_checksums);
    static_cast<void>(emit(context_, *frame, header, fields, wire::kMadBytes,
                           {.loopback = outgoing.to.loopback}, [&](std::span<uint8_t> to, uint32_t*) {
                             std::copy(outgoing.mad.begin(), outgoing.mad.end(), to.data());
                             return true;
                           }));
    ++context_.counters.management_sent;
    head_ = (head_ + 1) % kMaxWaiting;
    waiting_.store(waiting_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  }
}

}  // namespace faultline::transport
