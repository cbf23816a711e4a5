// SPDX-License-Identifier: BSD-3-Clause
// Commands for connections: listen, connect, accept, reject, disconnect.
#include <algorithm>
#include <cerrno>

#include "stack/abi/rdma_cm/channel.hpp"

namespace faultline::abi {

namespace {

uint64_t service_id(const Identifier& identifier, const Endpoint& endpoint) {
  return wire::ip_service_id(endpoint.port_space != 0 ? endpoint.port_space : identifier.port_space,
                             endpoint.port);
}

std::span<const uint8_t> private_data(const rdma_ucm_conn_param& param) {
  return {param.private_data, param.private_data_len};
}

/// Returns annex A11's header; AF_IB programs do not use it.
std::optional<wire::IpAddressing> ip_addressing(const Identifier& identifier) {
  if (identifier.destination.family == kFamilyIb) return std::nullopt;
  return wire::IpAddressing{identifier.source.gid, identifier.destination.gid, identifier.source.port};
}

int ask_for_service(Identifier& identifier, const rdma_ucm_conn_param& param) {
  cm::ResolveParams wanted;
  wanted.service_id = service_id(identifier, identifier.destination);
  wanted.path = identifier.path;
  wanted.ip = ip_addressing(identifier);
  wanted.private_data = private_data(param);
  wanted.user = identifier.key;
  return identifier.device->service().with(
      [&](cm::Manager& manager, TimeNs now) { return manager.resolve(wanted, now, identifier.connection); });
}

int ask_for_connection(Identifier& identifier, const rdma_ucm_conn_param& param) {
  constexpr uint8_t kMaxRetries = 7;  // three bits
  cm::ConnectParams wanted;
  wanted.service_id = service_id(identifier, identifier.destination);
  wanted.path = identifier.path;
  if (identifier.ack_timeout) wanted.path.local_ack_timeout = *identifier.ack_timeout;
  wanted.transport = transport_of(identifier.type);
  wanted.qpn = param.qp_num;
  wanted.starting_psn = identifier.starting_psn;
  wanted.responder_resources = param.responder_resources;
  wanted.initiator_depth = param.initiator_depth;
  wanted.flow_control = param.flow_control != 0;
  wanted.retry_count = std::min(param.retry_count, kMaxRetries);
  wanted.rnr_retry_count = std::min(param.rnr_retry_count, kMaxRetries);
  wanted.srq = param.srq != 0;
  wanted.ip = ip_addressing(identifier);
  wanted.private_data = private_data(param);
  wanted.user = identifier.key;
  return identifier.device->service().with(
      [&](cm::Manager& manager, TimeNs now) { return manager.connect(wanted, now, identifier.connection); });
}

int accept_request(const Identifier& identifier, const rdma_ucm_conn_param& param) {
  constexpr uint8_t kMaxRetries = 7;
  return identifier.device->service().with([&](cm::Manager& manager, TimeNs now) {
    if (identifier.type == IBV_QPT_UD) {
      cm::ResolveAnswer answer;
      answer.qpn = param.qp_num;
      answer.qkey = kDatagramQkey;
      answer.private_data = private_data(param);
      return manager.answer(identifier.connection, answer, now);
    }
    cm::AcceptParams answer;
    answer.qpn = param.qp_num;
    answer.starting_psn = identifier.starting_psn;
    answer.responder_resources = param.responder_resources;
    answer.initiator_depth = param.initiator_depth;
    answer.flow_control = param.flow_control != 0;
    answer.rnr_retry_count = std::min(param.rnr_retry_count, kMaxRetries);
    answer.srq = param.srq != 0;
    answer.private_data = private_data(param);
    return manager.accept(identifier.connection, answer, now);
  });
}

/// Runs `action` on the connection of identifier `handle`, for commands that carry only that number.
template <typename Action>
int with_connection(CmCore& core, const EventQueue& queue, uint32_t handle, Action action) {
  const std::lock_guard lock(core.mutex);
  int error = 0;
  const auto identifier = own_identifier(core, queue, handle, error);
  if (identifier == nullptr) return error;
  if (identifier->connection == 0) return EINVAL;
  return action(*identifier);
}

}  // namespace

int connect(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_connect fields;
  if (const int error = command.read(fields); error != 0) return error;
  if (fields.conn_param.valid == 0) return EINVAL;
  const std::lock_guard lock(core.mutex);
  int error = 0;
  const auto identifier = own_identifier(core, queue, fields.id, error);
  if (identifier == nullptr) return error;
  const auto next = transition(identifier->state, IdInput::connect);
  if (!next) return EINVAL;
  error = identifier->type == IBV_QPT_UD ? ask_for_service(*identifier, fields.conn_param)
                                         : ask_for_connection(*identifier, fields.conn_param);
  if (error != 0) return error;
  identifier->state = *next;
  identifier->qpn = fields.conn_param.qp_num;
  identifier->published.write(*identifier);
  return 0;
}

int listen(CmCore& core, EventQueue& queue, const CmCommand& command) {
  constexpr uint32_t kMaxBacklog = 1024;  // net.rdma_ucm.max_backlog
  rdma_ucm_listen fields;
  if (const int error = command.read(fields); error != 0) return error;
  // An identifier that is bound to no device listens on all of them. They are started without the mutex.
  std::vector<std::shared_ptr<CmDevice>> devices;
  {
    const std::lock_guard lock(core.mutex);
    int error = 0;
    const auto identifier = own_identifier(core, queue, fields.id, error);
    if (identifier == nullptr) return error;
    if (identifier->device != nullptr) devices.push_back(identifier->device);
  }
  if (devices.empty()) devices = core.open_devices();

  const std::lock_guard lock(core.mutex);
  int error = 0;
  const auto identifier = own_identifier(core, queue, fields.id, error);
  if (identifier == nullptr) return error;
  if (identifier->state == IdState::idle) {
    // cma_listen_on_all: as if it had been bound to any IPv4 address.
    identifier->source = {.family = AF_INET, .gid = wire::Gid::from_ipv4(0), .port = 0, .port_space = 0};
    error = core.ports.bind(identifier.get(), identifier->port_space, identifier->source,
                            identifier->port_options);
    if (error != 0) return error;
    identifier->port_taken = true;
    identifier->state = *transition(identifier->state, IdInput::bind);
  }
  const auto next = transition(identifier->state, IdInput::listen);
  if (!next) return EINVAL;
  if (error = core.ports.listen(identifier.get(), identifier->port_space, identifier->source); error != 0)
    return error;

  cm::ListenParams wanted;
  wanted.service_id = service_id(*identifier, identifier->source);
  wanted.backlog = fields.backlog > 0 && fields.backlog < kMaxBacklog ? fields.backlog : kMaxBacklog;
  wanted.user = identifier->key;
  if (!identifier->source.is_any())
    wanted.address = identifier->source.gid;
  else if (identifier->source.family == AF_INET)
    wanted.family = cm::Family::ipv4;
  else if (identifier->source.family == AF_INET6 && identifier->port_options.family_only)
    wanted.family = cm::Family::ipv6;
  for (const auto& device : devices) {
    cm::Id id = 0;
    error = device->service().with(
        [&](cm::Manager& manager, TimeNs /*now*/) { return manager.listen(wanted, id); });
    if (error != 0) break;
    identifier->listeners.push_back({device, id});
  }
  if (error != 0) {
    for (const Identifier::Listener& listener : identifier->listeners)
      listener.device->service().with(
          [&](cm::Manager& manager, TimeNs now) { manager.destroy(listener.id, now); });
    identifier->listeners.clear();
    return error;
  }
  identifier->state = *next;
  identifier->published.write(*identifier);
  return 0;
}

int accept(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_accept fields;
  if (const int error = command.read(fields); error != 0) return error;
  return with_connection(core, queue, fields.id, [&](Identifier& identifier) {
    if (!transition(identifier.state, IdInput::accept)) return EINVAL;
    if (fields.conn_param.valid == 0) {
      // The program accepts the peer's REP: send the RTU.
      return identifier.device->service().with(
          [&](cm::Manager& manager, TimeNs now) { return manager.confirm(identifier.connection, {}, now); });
    }
    // Set before the accept, whose first event may arrive at once and must carry the new uid.
    const uint64_t uid = std::exchange(identifier.uid, fields.uid);
    const int error = accept_request(identifier, fields.conn_param);
    if (error != 0) {
      identifier.uid = uid;
      return error;
    }
    identifier.qpn = fields.conn_param.qp_num;
    identifier.published.write(identifier);
    return 0;
  });
}

int reject(CmCore& core, EventQueue& queue, const CmCommand& command) {
  constexpr uint8_t kVendorOptionNotSupported = 35;
  rdma_ucm_reject fields;
  if (const int error = command.read(fields); error != 0) return error;
  const auto consumer_defined = static_cast<uint8_t>(wire::RejectReason::consumer_defined);
  if (fields.reason == 0) fields.reason = consumer_defined;
  if (fields.reason != consumer_defined && fields.reason != kVendorOptionNotSupported) return EINVAL;
  return with_connection(core, queue, fields.id, [&](Identifier& identifier) {
    if (!transition(identifier.state, IdInput::reject)) return EINVAL;
    const std::span<const uint8_t> data(fields.private_data, fields.private_data_len);
    return identifier.device->service().with([&](cm::Manager& manager, TimeNs now) {
      if (identifier.type == IBV_QPT_UD) {
        cm::ResolveAnswer answer;
        answer.status = wire::SidrStatus::rejected;
        answer.private_data = data;
        return manager.answer(identifier.connection, answer, now);
      }
      return manager.reject(identifier.connection, static_cast<wire::RejectReason>(fields.reason), {}, data,
                            now);
    });
  });
}

int disconnect(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_disconnect fields;
  if (const int error = command.read(fields); error != 0) return error;
  return with_connection(core, queue, fields.id, [&](Identifier& identifier) {
    // A connection that has already ended sends nothing; the kernel reports no error either.
    identifier.device->service().with([&](cm::Manager& manager, TimeNs now) {
      static_cast<void>(manager.disconnect(identifier.connection, {}, now));
    });
    return 0;
  });
}

int notify(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_notify fields;
  if (const int error = command.read(fields); error != 0) return error;
  return with_connection(core, queue, fields.id, [&](Identifier& identifier) {
    if (fields.event != IBV_EVENT_COMM_EST) return EINVAL;
    return identifier.device->service().with([&](cm::Manager& manager, TimeNs now) {
      return manager.notify_established(identifier.connection, now);
    });
  });
}

}  // namespace faultline::abi
