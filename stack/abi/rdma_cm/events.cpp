// SPDX-License-Identifier: BSD-3-Clause
// Converts the connection manager's events to rdma_cm's, as the kernel's cma_ib_handler and
// cma_ib_req_handler do.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "stack/abi/rdma_cm/core.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::abi {

namespace {

void copy_private(const cm::Event& event, uint8_t (&data)[RDMA_MAX_PRIVATE_DATA], uint8_t& length) {
  const std::span<const uint8_t> bytes = event.private_data.bytes();
  std::copy(bytes.begin(), bytes.end(), data);
  length = static_cast<uint8_t>(bytes.size());
}

void fill_connection(const cm::Event& event, rdma_ucm_conn_param& param) {
  copy_private(event, param.private_data, param.private_data_len);
  param.qp_num = event.remote_qpn;
  param.srq = event.srq ? 1 : 0;
  param.responder_resources = event.responder_resources;
  param.initiator_depth = event.initiator_depth;
  param.flow_control = event.flow_control ? 1 : 0;
  param.retry_count = event.retry_count;
  param.rnr_retry_count = event.rnr_retry_count;
}

sa_family_t family_of(const wire::Gid& gid) {
  return gid.is_ipv4() ? AF_INET : AF_INET6;
}

/// Creates the identifier of an incoming request. The program learns of it with the event.
std::shared_ptr<Identifier> make_request(CmCore& core, CmDevice& device, const Identifier& listener,
                                         const cm::Event& event) {
  auto request = core.create(*listener.queue, listener.port_space, listener.type);
  request->state = IdState::connected;
  request->passive = true;
  request->path = event.path;
  request->connection = event.id;
  request->traffic_class = listener.traffic_class;
  request->ack_timeout = listener.ack_timeout;
  if (event.ip) {
    request->source = {family_of(event.ip->destination), event.ip->destination, listener.source.port, 0};
    request->destination = {family_of(event.ip->source), event.ip->source, event.ip->source_port, 0};
  } else {
    const wire::PathHeader& path = event.path.av.path;
    request->source = {kFamilyIb, path.source_gid, listener.source.port, listener.source.port_space};
    request->destination = {kFamilyIb, path.destination_gid, 0, 0};
  }
  for (const Identifier::Listener& at : listener.listeners)
    if (at.device.get() == &device) request->device = at.device;
  request->published.write(*request);
  return request;
}

void tell_request(CmCore& core, CmDevice& device, const cm::Event& event) {
  const auto listener = core.find_key(event.listener_user);
  const bool is_connection = event.kind == cm::EventKind::requested;
  const auto refuse = [&](wire::RejectReason reason) {
    device.service().with([&](cm::Manager& manager, TimeNs now) {
      if (is_connection)
        static_cast<void>(manager.reject(event.id, reason, {}, {}, now));
      else
        static_cast<void>(manager.answer(event.id, {.status = wire::SidrStatus::unsupported}, now));
      manager.destroy(event.id, now);
    });
  };
  if (listener == nullptr) return refuse(wire::RejectReason::invalid_service_id);
  if (is_connection && transport_of(listener->type) != event.transport)
    return refuse(wire::RejectReason::invalid_transport);

  const auto request = make_request(core, device, *listener, event);
  device.service().with([&](cm::Manager& manager, TimeNs /*now*/) {
    static_cast<void>(manager.set_user(event.id, request->key));
  });
  QueuedEvent queued = event_of(listener, CmEvent::connect_request);
  queued.request = request;
  queued.answer.id = request->handle;
  if (is_connection)
    fill_connection(event, queued.answer.param.conn);
  else
    copy_private(event, queued.answer.param.ud.private_data, queued.answer.param.ud.private_data_len);
  CmCore::post(*listener->queue, std::move(queued));
}

void tell_resolved_service(const std::shared_ptr<Identifier>& identifier, const cm::Event& event) {
  QueuedEvent queued = event_of(identifier, CmEvent::established);
  if (event.sidr_status != wire::SidrStatus::valid) {
    queued = event_of(identifier, CmEvent::unreachable, static_cast<int>(event.sidr_status));
  } else {
    queued.answer.param.ud.qp_num = event.remote_qpn;
    queued.answer.param.ud.qkey = event.remote_qkey;
    queued.answer.param.ud.ah_attr = address_attributes(*identifier->device, identifier->path);
  }
  copy_private(event, queued.answer.param.ud.private_data, queued.answer.param.ud.private_data_len);
  CmCore::post(*identifier->queue, std::move(queued));
}

void tell(const std::shared_ptr<Identifier>& identifier, const cm::Event& event, CmEvent kind, int status) {
  QueuedEvent queued = event_of(identifier, kind, status);
  fill_connection(event, queued.answer.param.conn);
  CmCore::post(*identifier->queue, std::move(queued));
}

void tell_disconnected(const std::shared_ptr<Identifier>& identifier, const cm::Event& event) {
  // Reported once, whatever caused it.
  const auto next = transition(identifier->state, IdInput::disconnected);
  if (!next) return;
  identifier->state = *next;
  identifier->published.write(*identifier);
  tell(identifier, event, CmEvent::disconnected, 0);
}

}  // namespace

ib_uverbs_ah_attr address_attributes(const CmDevice& device, const cm::Path& path) {
  const wire::PathHeader& header = path.av.path;
  ib_uverbs_ah_attr attributes{};
  std::copy(header.destination_gid.bytes.begin(), header.destination_gid.bytes.end(), attributes.grh.dgid);
  attributes.grh.flow_label = header.flow_label;
  attributes.grh.sgid_index = device.gid_index(header.source_gid);
  attributes.grh.hop_limit = header.hop_limit;
  attributes.grh.traffic_class = header.traffic_class;
  attributes.is_global = 1;
  attributes.port_num = verbs::kPortNumber;
  return attributes;
}

void on_device_removed(CmCore& core, int device_index) {
  const std::lock_guard lock(core.mutex);
  for (const auto& identifier : core.bound_to(device_index))
    if (identifier->uid != 0) CmCore::post(*identifier->queue, event_of(identifier, CmEvent::device_removal));
}

void on_address_change(CmCore& core, const EventQueue& queue) {
  const std::lock_guard lock(core.mutex);
  for (const auto& identifier : core.bound_of(queue))
    if (identifier->uid != 0) CmCore::post(*identifier->queue, event_of(identifier, CmEvent::address_change));
}

namespace {

/// Explains a reject reason that rdma_cm programs meet (IBA 12.6.7.2, table 101).
const char* text_of(wire::RejectReason reason) {
  switch (reason) {
    case wire::RejectReason::timeout:
      return "its program did not answer in time";
    case wire::RejectReason::invalid_service_id:
      return "nobody listens on the port there";
    case wire::RejectReason::invalid_transport:
      return "the listener has another type of QP";
    case wire::RejectReason::stale_connection:
      return "it still had the connection of another process with this QPN";
    case wire::RejectReason::consumer_defined:
      return "its program called rdma_reject()";
    default:
      return "see IBA 12.6.7.2";
  }
}

bool is_timeout(const cm::Event& event) {
  return event.kind == cm::EventKind::unreachable || event.kind == cm::EventKind::service_unreachable;
}

void note_failure(CmDevice& device, const cm::Event& event, const Identifier* identifier) {
  const wire::Gid peer = identifier != nullptr ? identifier->path.av.path.destination_gid : wire::Gid{};
  if (event.kind == cm::EventKind::rejected)
    device.note_failure(status::FailureCause::connection_rejected, peer, static_cast<uint8_t>(event.reason));
  else if (is_timeout(event))
    device.note_failure(status::FailureCause::connection_timeout, peer, 0);
}

void log_failure(CmDevice& device, const cm::Event& event, const Identifier* identifier) {
  const std::string peer = identifier == nullptr
                               ? std::string()
                               : " to " + wire::text_of(identifier->path.av.path.destination_gid);
  if (event.kind == cm::EventKind::rejected)
    device.log_reason("connection" + peer + " rejected by the peer, reason " +
                      std::to_string(static_cast<int>(event.reason)) + ": " + text_of(event.reason));
  else if (is_timeout(event))
    device.log_reason("connection" + peer + " timed out: the peer's connection manager does not answer");
}

}  // namespace

void on_connection_event(CmCore& core, CmDevice& device, const cm::Event& event) {
  const std::lock_guard lock(core.mutex);
  if (event.kind == cm::EventKind::requested || event.kind == cm::EventKind::service_requested)
    return tell_request(core, device, event);
  const auto identifier = core.find_key(event.user);
  note_failure(device, event, identifier.get());
  if (device.wants_reasons()) log_failure(device, event, identifier.get());
  // uid 0: the program has not accepted the request yet. It learns of changes from the result of its accept.
  if (identifier == nullptr || identifier->uid == 0) return;
  switch (event.kind) {
    case cm::EventKind::replied:
      return tell(identifier, event, CmEvent::connect_response, 0);
    case cm::EventKind::established:
      return tell(identifier, event, CmEvent::established, 0);
    case cm::EventKind::rejected:
      return tell(identifier, event, CmEvent::rejected, static_cast<int>(event.reason));
    case cm::EventKind::unreachable:
      return tell(identifier, event, CmEvent::unreachable, -ETIMEDOUT);
    case cm::EventKind::disconnected:
      return tell_disconnected(identifier, event);
    case cm::EventKind::time_wait_over:
      return tell(identifier, event, CmEvent::time_wait_exit, 0);
    case cm::EventKind::service_resolved:
      return tell_resolved_service(identifier, event);
    case cm::EventKind::service_unreachable:
      return tell(identifier, event, CmEvent::unreachable, -ETIMEDOUT);
    case cm::EventKind::requested:
    case cm::EventKind::service_requested:
      return;
  }
}

}  // namespace faultline::abi
