// SPDX-License-Identifier: BSD-3-Clause
// Processes received messages: validity checks, a switch on the attribute, then the connection's state
// machine.
#include <algorithm>
#include <array>
#include <new>

#include "stack/cm/manager_impl.hpp"
#include "stack/trouble/director.hpp"
#include "stack/wire/packet/byte_order.hpp"

namespace faultline::cm {

void Manager::on_mad(std::span<const uint8_t> bytes, const MadSource& source, TimeNs now) {
  wire::CmMad mad;
  if (const wire::MadError error = wire::CmMad::parse(bytes, mad); error != wire::MadError::none) {
    ++impl_->counters.mad_errors[static_cast<size_t>(error)];
    return;
  }
  // Only QP1 may send these messages; another QP of a program may know the Q_Key too.
  if (source.source_qpn != wire::kManagementQpn) return impl_->drop(DropReason::source_qpn);
  ++impl_->counters.received;
  try {
    if (!impl_->wait_for_listener(mad, bytes, source, now)) impl_->on_message(mad, source, now);
  } catch (const std::bad_alloc&) {
    impl_->drop(DropReason::no_resources);
  }
}

bool Manager::Impl::wait_for_listener(const wire::CmMad& mad, std::span<const uint8_t> bytes,
                                      const MadSource& source, TimeNs now) {
  constexpr size_t kMaxPendingRequests = 256;
  if (config.listener_patience_ns == 0 || pending_requests.size() >= kMaxPendingRequests) return false;
  const auto service = wire::service_id(mad);
  if (!service || listeners.match(*service, source.reply.path.source_gid) != nullptr) return false;
  PendingRequest& request = pending_requests.emplace_back();
  std::copy(bytes.begin(), bytes.end(), request.mad.begin());
  request.source = source;
  request.until = now + config.listener_patience_ns;
  return true;
}

void Manager::Impl::hurry_pending_requests() {
  for (PendingRequest& request : pending_requests) {
    wire::CmMad mad;
    static_cast<void>(wire::CmMad::parse(request.mad, mad));
    if (listeners.match(*wire::service_id(mad), request.source.reply.path.source_gid) != nullptr)
      request.until = 0;
  }
}

void Manager::Impl::retry_pending_requests(TimeNs now) {
  std::deque<PendingRequest> due;
  std::erase_if(pending_requests, [&](const PendingRequest& request) {
    if (request.until > now) return false;
    due.push_back(request);
    return true;
  });
  for (const PendingRequest& request : due) {
    wire::CmMad mad;
    static_cast<void>(wire::CmMad::parse(request.mad, mad));
    on_message(mad, request.source, now);
  }
}

void Manager::Impl::on_message(const wire::CmMad& mad, const MadSource& source, TimeNs now) {
  received_at_ns = now;
  switch (mad.attribute()) {
    case wire::CmAttribute::req:
      return on_req(mad, source, now);
    case wire::CmAttribute::mra:
      return on_mra(mad, source, now);
    case wire::CmAttribute::rej:
      return on_rej(mad, source, now);
    case wire::CmAttribute::rep:
      return on_rep(mad, source, now);
    case wire::CmAttribute::rtu:
      return on_rtu(mad, source, now);
    case wire::CmAttribute::dreq:
      return on_dreq(mad, source, now);
    case wire::CmAttribute::drep:
      return on_drep(mad, source, now);
    case wire::CmAttribute::sidr_req:
      return on_sidr_req(mad, source, now);
    case wire::CmAttribute::sidr_rep:
      return on_sidr_rep(mad, source, now);
  }
}

Record* Manager::Impl::connection(uint32_t own_id, uint32_t remote_id, const MadSource& source) {
  Record* const record = find(own_id);
  if (record == nullptr) {
    drop(DropReason::unknown_id);
    return nullptr;
  }
  // The active side learns the peer's ID from the REP.
  if (source.reply.path.destination_gid != record->qp.path.av.path.destination_gid ||
      (record->remote_id != 0 && record->remote_id != remote_id)) {
    drop(DropReason::wrong_peer);
    return nullptr;
  }
  return record;
}

void Manager::Impl::take_message(Record& record, Input input, const wire::CmMad& mad, TimeNs now) {
  if (!apply(record, input, {.now = now, .mad = &mad})) drop(DropReason::wrong_state);
}

// ---- requests ----

/// Returns the reason with which a scenario rejects this request; 0: it does not.
static uint8_t reason_of_scenario() {
  trouble::Director* const director = trouble::director();
  if (director == nullptr) return 0;
  const trouble::Action* const action =
      director->decide({.kind = trouble::EventKind::request, .name = {}, .object = {}});
  return action == nullptr ? 0 : static_cast<uint8_t>(action->number);
}

void Manager::Impl::reject_req(const wire::CmReq& req, const wire::CmMad& mad, const MadSource& source,
                               wire::RejectReason reason, std::span<const uint8_t> info) {
  wire::MadBytes answer;
  wire::write(answer, mad.transaction_id(),
              wire::CmRej{.local_id = 0,
                          .remote_id = req.local_id,
                          .rejected = wire::CmAnswered::req,
                          .reason = reason,
                          .info = info});
  send_stateless_reply(answer, source);
}

/// Rejects an invalid request. Returns true if it was rejected.
bool Manager::Impl::refuse(const wire::CmReq& req, const wire::CmMad& mad, const MadSource& source) {
  const wire::PathHeader& back = source.reply.path;
  if (req.transport == wire::CmTransport::rd) {
    reject_req(req, mad, source, wire::RejectReason::invalid_transport);
    return true;
  }
  // The connection's packets will be accepted from that address only.
  if (req.primary.local_gid != back.destination_gid || req.primary.remote_gid != back.source_gid) {
    reject_req(req, mad, source, wire::RejectReason::invalid_gid);
    return true;
  }
  if (req.path_mtu < static_cast<uint8_t>(transport::PathMtu::mtu256) ||
      req.path_mtu > static_cast<uint8_t>(config.max_mtu)) {
    // The additional information is the largest acceptable MTU, at the field's position in the REQ.
    const std::array<uint8_t, 1> most{static_cast<uint8_t>(static_cast<unsigned>(config.max_mtu) << 4)};
    reject_req(req, mad, source, wire::RejectReason::invalid_mtu, most);
    return true;
  }
  if (!wire::is_ip_service(req.service_id)) return false;
  const auto ip = wire::read_ip_addressing(req.private_data.first<wire::kIpAddressingBytes>());
  if (ip && ip->source == back.destination_gid) return false;
  // Programs see the header's address as the peer's, so it must match.
  reject_req(req, mad, source, ip ? wire::RejectReason::invalid_gid : wire::RejectReason::unsupported);
  return true;
}

/// Rejects a REQ for a QP that another connection has: the peer has forgotten that connection (IBA
/// 12.9.8.3.1).
bool Manager::Impl::reject_stale(const wire::CmReq& req, const wire::CmMad& mad, const MadSource& source,
                                 TimeNs now) {
  const auto at = by_peer_qp.find({source.reply.path.destination_gid, req.ca_guid, req.qpn});
  if (at == by_peer_qp.end()) return false;
  ++counters.stale;
  reject_req(req, mad, source, wire::RejectReason::stale_connection);
  static_cast<void>(apply(*at->second, Input::disconnect, {.now = now}));
  return true;
}

void Manager::Impl::on_req(const wire::CmMad& mad, const MadSource& source, TimeNs now) {
  const wire::CmReq req = wire::read_req(mad);
  const wire::PathHeader& back = source.reply.path;
  const PeerKey key{back.destination_gid, req.ca_guid, req.local_id};
  if (const auto known = by_peer.find(key); known != by_peer.end())
    return take_message(*known->second, Input::req, mad, now);
  Listener* const listener = listeners.match(req.service_id, back.source_gid);
  if (listener == nullptr) return reject_req(req, mad, source, wire::RejectReason::invalid_service_id);
  if (const uint8_t reason = reason_of_scenario(); reason != 0)
    return reject_req(req, mad, source, static_cast<wire::RejectReason>(reason));
  if (refuse(req, mad, source) || reject_stale(req, mad, source, now)) return;
  if (listener->awaiting >= listener->params.backlog) return drop(DropReason::backlog);
  if (full()) return drop(DropReason::no_resources);
  if (!new_requests.take(now)) return drop(DropReason::rate);

  Record& record = add_record();
  record.state = State::req_received;
  record.listener = listener->id;
  record.awaiting = true;
  ++listener->awaiting;
  record.service_id = req.service_id;
  record.transaction_id = mad.transaction_id();
  record.remote_id = req.local_id;
  record.remote_guid = req.ca_guid;
  record.timing = {req.remote_response_timeout, req.local_response_timeout, req.max_cm_retries};
  QpSettings& qp = record.qp;
  qp.path.av = source.reply;
  qp.path.av.path.flow_label = req.primary.flow_label;
  qp.path.av.path.traffic_class = req.primary.traffic_class;
  qp.path.pkey = source.pkey;
  qp.path.mtu = static_cast<transport::PathMtu>(req.path_mtu);
  qp.path.rate = req.primary.rate;
  qp.path.local_ack_timeout = qp.timeout = req.primary.local_ack_timeout;
  // The peer's ACK timeout covers two path lifetimes and its ACK delay.
  qp.path.packet_lifetime =
      static_cast<uint8_t>(req.primary.local_ack_timeout - (req.primary.local_ack_timeout != 0 ? 1 : 0));
  record.response_ns = ns_of_code(req.local_response_timeout) + 2 * ns_of_code(qp.path.packet_lifetime);
  qp.remote_qpn = req.qpn;
  // Upper limits for the agreement; programs prepare their QP before they accept.
  qp.max_dest_rd_atomic = req.initiator_depth;
  qp.max_rd_atomic = req.responder_resources;
  qp.sq_psn = req.starting_psn;
  qp.retry_count = req.retry_count;
  qp.rnr_retry_count = req.rnr_retry_count;
  qp.remote_srq = req.srq;
  qp.transport = req.transport;
  index_peer(record, key);
  index_peer_qp(record);

  Event event{.kind = EventKind::requested,
              .id = record.id,
              .listener = listener->id,
              .listener_user = listener->params.user,
              .service_id = req.service_id,
              .path = qp.path,
              .remote_qpn = req.qpn,
              .responder_resources = req.initiator_depth,
              .initiator_depth = req.responder_resources,
              .retry_count = req.retry_count,
              .rnr_retry_count = req.rnr_retry_count,
              .flow_control = req.flow_control,
              .srq = req.srq,
              .transport = req.transport,
              .private_data = PrivateData(req.private_data)};
  if (wire::is_ip_service(req.service_id)) {
    event.ip = wire::read_ip_addressing(req.private_data.first<wire::kIpAddressingBytes>());
    event.private_data = PrivateData(req.private_data.subspan(wire::kIpAddressingBytes));
  }
  tell(record, event);
}

void Manager::Impl::reject_sidr(const wire::CmSidrReq& request, const wire::CmMad& mad,
                                const MadSource& source, wire::SidrStatus status) {
  wire::MadBytes answer;
  wire::write(
      answer, mad.transaction_id(),
      wire::CmSidrRep{.request_id = request.request_id, .status = status, .service_id = request.service_id});
  send_stateless_reply(answer, source);
}

void Manager::Impl::on_sidr_req(const wire::CmMad& mad, const MadSource& source, TimeNs now) {
  const wire::CmSidrReq request = wire::read_sidr_req(mad);
  const wire::PathHeader& back = source.reply.path;
  const PeerKey key{back.destination_gid, 0, request.request_id, true};
  if (const auto known = by_peer.find(key); known != by_peer.end())
    return take_message(*known->second, Input::sidr_req, mad, now);
  Listener* const listener = listeners.match(request.service_id, back.source_gid);
  if (listener == nullptr) return reject_sidr(request, mad, source, wire::SidrStatus::unsupported);
  std::optional<wire::IpAddressing> ip;
  if (wire::is_ip_service(request.service_id)) {
    ip = wire::read_ip_addressing(request.private_data.first<wire::kIpAddressingBytes>());
    if (!ip || ip->source != back.destination_gid)
      return reject_sidr(request, mad, source, wire::SidrStatus::rejected);
  }
  if (listener->awaiting >= listener->params.backlog) return drop(DropReason::backlog);
  if (full()) return drop(DropReason::no_resources);
  if (!new_requests.take(now)) return drop(DropReason::rate);

  Record& record = add_record();
  record.state = State::sidr_req_received;
  record.listener = listener->id;
  record.awaiting = true;
  ++listener->awaiting;
  record.service_id = request.service_id;
  record.transaction_id = mad.transaction_id();
  record.remote_id = request.request_id;
  record.qp.path.av = source.reply;
  record.qp.path.pkey = source.pkey;
  record.qp.path.mtu = config.max_mtu;
  index_peer(record, key);
  tell(record, {.kind = EventKind::service_requested,
                .listener = listener->id,
                .listener_user = listener->params.user,
                .service_id = request.service_id,
                .path = record.qp.path,
                .ip = ip,
                .private_data = PrivateData(ip ? request.private_data.subspan(wire::kIpAddressingBytes)
                                               : request.private_data)});
}

// ---- replies and later messages ----

void Manager::Impl::on_rep(const wire::CmMad& mad, const MadSource& source, TimeNs now) {
  const wire::CmRep rep = wire::read_rep(mad);
  if (find(rep.remote_id) == nullptr) {
    // Lets the peer stop waiting for an RTU.
    drop(DropReason::unknown_id);
    wire::MadBytes answer;
    wire::write(answer, mad.transaction_id(),
                wire::CmRej{.local_id = rep.remote_id,
                            .remote_id = rep.local_id,
                            .rejected = wire::CmAnswered::rep,
                            .reason = wire::RejectReason::invalid_communication_id});
    return send_stateless_reply(answer, source);
  }
  Record* const record = connection(rep.remote_id, rep.local_id, source);
  if (record == nullptr) return;
  // A passive side expects no REP.
  if (!record->active) return drop(DropReason::wrong_state);
  take_message(*record, Input::rep, mad, now);
}

void Manager::Impl::on_rej(const wire::CmMad& mad, const MadSource& source, TimeNs now) {
  const wire::CmRej rej = wire::read_rej(mad);
  Record* record = nullptr;
  if (rej.remote_id == 0 && rej.reason == wire::RejectReason::timeout &&
      rej.info.size() >= sizeof(uint64_t)) {
    const auto at =
        by_peer.find({source.reply.path.destination_gid, wire::load_be64(rej.info.data()), rej.local_id});
    if (at == by_peer.end()) return drop(DropReason::unknown_id);
    record = at->second;
  } else {
    // Local ID 0: the sender has no ID for this connection.
    const Record* const named = find(rej.remote_id);
    const uint32_t peer_id = rej.local_id == 0 && named != nullptr ? named->remote_id : rej.local_id;
    record = connection(rej.remote_id, peer_id, source);
  }
  if (record != nullptr) take_message(*record, Input::rej, mad, now);
}

void Manager::Impl::on_mra(const wire::CmMad& mad, const MadSource& source, TimeNs now) {
  const wire::CmMra mra = wire::read_mra(mad);
  Record* const record = connection(mra.remote_id, mra.local_id, source);
  if (record == nullptr) return;
  if (mra.answered != wire::CmAnswered::req && mra.answered != wire::CmAnswered::rep)
    return drop(DropReason::wrong_state);
  take_message(*record, mra.answered == wire::CmAnswered::req ? Input::mra_req : Input::mra_rep, mad, now);
}

void Manager::Impl::on_rtu(const wire::CmMad& mad, const MadSource& source, TimeNs now) {
  const wire::CmRtu rtu = wire::read_rtu(mad);
  if (Record* const record = connection(rtu.remote_id, rtu.local_id, source))
    take_message(*record, Input::rtu, mad, now);
}

void Manager::Impl::on_dreq(const wire::CmMad& mad, const MadSource& source, TimeNs now) {
  const wire::CmDreq dreq = wire::read_dreq(mad);
  if (find(dreq.remote_id) == nullptr) {
    // The connection has ended; a DREP confirms that to the peer.
    drop(DropReason::unknown_id);
    wire::MadBytes answer;
    wire::write(answer, mad.transaction_id(),
                wire::CmDrep{.local_id = dreq.remote_id, .remote_id = dreq.local_id});
    return send_stateless_reply(answer, source);
  }
  Record* const record = connection(dreq.remote_id, dreq.local_id, source);
  if (record == nullptr) return;
  if (dreq.remote_qpn != record->qp.local_qpn) return drop(DropReason::wrong_peer);
  take_message(*record, Input::dreq, mad, now);
}

void Manager::Impl::on_drep(const wire::CmMad& mad, const MadSource& source, TimeNs now) {
  const wire::CmDrep drep = wire::read_drep(mad);
  if (Record* const record = connection(drep.remote_id, drep.local_id, source))
    take_message(*record, Input::drep, mad, now);
}

void Manager::Impl::on_sidr_rep(const wire::CmMad& mad, const MadSource& source, TimeNs now) {
  const wire::CmSidrRep answer = wire::read_sidr_rep(mad);
  if (Record* const record = connection(answer.request_id, 0, source))
    take_message(*record, Input::sidr_rep, mad, now);
}

}  // namespace faultline::cm
