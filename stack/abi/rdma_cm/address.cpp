// SPDX-License-Identifier: BSD-3-Clause
// Commands that create an identifier and set its addresses.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <netinet/in.h>

#include "stack/abi/rdma_cm/channel.hpp"

namespace faultline::abi {

namespace {

using Bytes = std::span<const uint8_t>;

Bytes bytes_of(const void* address, size_t length) {
  return {static_cast<const uint8_t*>(address), length};
}

int set_state(Identifier& identifier, IdInput input) {
  const auto next = transition(identifier.state, input);
  if (!next) return EINVAL;
  identifier.state = *next;
  identifier.published.write(identifier);
  return 0;
}

/// Returns the port space that a service ID must have for an identifier of `port_space` (cma_select_ib_ps).
/// 0: none.
uint16_t ib_port_space(uint16_t port_space, const Endpoint& endpoint) {
  const uint16_t wanted = endpoint.port_space;
  if (port_space == RDMA_PS_IB && (wanted == RDMA_PS_IB || wanted == RDMA_PS_TCP)) return wanted;
  if (port_space == RDMA_PS_TCP && wanted == RDMA_PS_TCP) return wanted;
  if ((port_space == RDMA_PS_IB || port_space == RDMA_PS_UDP) && wanted == RDMA_PS_UDP) return wanted;
  return 0;
}

/// Finds the device of a local address. Returns 0, or the errno of binding to it. `device` stays empty for
/// any address.
int find_device(CmCore& core, const Endpoint& endpoint, std::shared_ptr<CmDevice>& device) {
  if (endpoint.is_any()) return 0;
  const auto local = find_local(endpoint.gid);
  if (!local) return EADDRNOTAVAIL;
  device = core.open_device(local->device);
  return device == nullptr ? ENODEV : 0;
}

/// Requires the mutex.
int bind(CmCore& core, Identifier& identifier, Endpoint endpoint, std::shared_ptr<CmDevice> device) {
  if (!transition(identifier.state, IdInput::bind)) return EINVAL;
  if (endpoint.family == kFamilyIb && ib_port_space(identifier.port_space, endpoint) == 0)
    return EADDRNOTAVAIL;
  // If both bindings have RDMA_OPTION_ID_AFONLY, an IPv4 address does not use up the port for IPv6.
  if (const int error =
          core.ports.bind(&identifier, identifier.port_space, endpoint, identifier.port_options);
      error != 0)
    return error;
  identifier.port_taken = true;
  identifier.source = endpoint;
  if (device != nullptr) identifier.path.av.path.source_gid = endpoint.gid;
  identifier.device = std::move(device);
  return set_state(identifier, IdInput::bind);
}

/// 127.0.0.0/8 and ::1 belong to no device. A program that binds to one (libfabric, for "localhost") means
/// this host, and is bound to the host's first address.
bool is_loopback(const wire::Gid& gid) {
  constexpr size_t kFirstOfIpv4 = 12;
  constexpr uint8_t kLoopbackNet = 127;
  if (gid.is_ipv4()) return gid.bytes[kFirstOfIpv4] == kLoopbackNet;
  return std::all_of(gid.bytes.begin(), gid.bytes.end() - 1, [](uint8_t byte) { return byte == 0; }) &&
         gid.bytes.back() == 1;
}

int bind_to(CmCore& core, EventQueue& queue, uint32_t handle, Endpoint endpoint) {
  if (is_loopback(endpoint.gid)) {
    const auto locals = sources_for(endpoint.gid);
    if (locals.empty()) return EADDRNOTAVAIL;
    endpoint.gid = locals.front().gid;
  }
  // First without the mutex: starting a device takes long.
  std::shared_ptr<CmDevice> device;
  const int device_error = find_device(core, endpoint, device);
  const std::lock_guard lock(core.mutex);
  int error = 0;
  const auto identifier = own_identifier(core, queue, handle, error);
  if (identifier == nullptr) return error;
  if (!transition(identifier->state, IdInput::bind)) return EINVAL;
  if (device_error != 0) return device_error;
  return bind(core, *identifier, endpoint, std::move(device));
}

// --- address resolution ---

struct RouteQuestion {
  uint64_t key = 0;
  std::shared_ptr<CmDevice> device;  ///< device that the identifier is bound to, or nullptr
  wire::Gid source, destination;
  uint8_t traffic_class = 0;
};

struct Route {
  int error = ENETUNREACH;
  std::shared_ptr<CmDevice> device;
  wire::Gid source;
  cm::Path path;
};

Route find_route(CmCore& core, const RouteQuestion& question) {
  Route route;
  if (question.device != nullptr) {
    route.device = question.device;
    route.source = question.source;
    route.error = route.device->find_path(route.device->gid_index(route.source), question.destination,
                                          question.traffic_class, route.path);
    return route;
  }
  for (const LocalAddress& source : sources_for(question.destination)) {
    route.device = core.open_device(source.device);
    route.source = source.gid;
    if (route.device == nullptr) {
      route.error = ENODEV;
      continue;
    }
    route.error =
        route.device->find_path(source.gid_index, question.destination, question.traffic_class, route.path);
    if (route.error != ENETUNREACH) break;  // the destination is on this network, even if it does not respond
  }
  return route;
}

void answer_question(CmCore& core, const RouteQuestion& question, const Route& route) {
  const std::lock_guard lock(core.mutex);
  const auto identifier = core.find_key(question.key);
  if (identifier == nullptr) return;
  if (route.error != 0) {
    identifier->state = *transition(identifier->state, IdInput::address_lost);
    identifier->published.write(*identifier);
    // No neighbour responded; the kernel reports this as ETIMEDOUT.
    const int status = route.error == EHOSTUNREACH ? ETIMEDOUT : route.error;
    return CmCore::post(*identifier->queue, event_of(identifier, CmEvent::address_error, -status));
  }
  identifier->state = *transition(identifier->state, IdInput::address_found);
  identifier->source.gid = route.source;
  identifier->device = route.device;
  identifier->path = route.path;
  identifier->published.write(*identifier);
  CmCore::post(*identifier->queue, event_of(identifier, CmEvent::address_resolved));
}

/// Runs on a background thread; may outlive the descriptor if neighbour resolution is slow.
void work_on(CmCore& core, RouteQuestion& question) {
  Route route = find_route(core, question);
  answer_question(core, question, route);
  core.release_device(std::move(question.device));
  core.release_device(std::move(route.device));
}

int resolve_to(CmCore& core, EventQueue& queue, uint32_t handle, Bytes source_bytes,
               Bytes destination_bytes) {
  const auto destination = read_endpoint(destination_bytes);
  if (!destination) return EINVAL;
  auto source = source_bytes.empty() ? std::nullopt : read_endpoint(source_bytes);
  if (!source) {
    source =
        Endpoint{.family = destination->family, .gid = {}, .port = 0, .port_space = destination->port_space};
    if (destination->family == AF_INET) source->gid = wire::Gid::from_ipv4(0);
  }
  std::shared_ptr<CmDevice> device;
  const int device_error = find_device(core, *source, device);

  RouteQuestion question;
  {
    const std::lock_guard lock(core.mutex);
    int error = 0;
    const auto identifier = own_identifier(core, queue, handle, error);
    if (identifier == nullptr) return error;
    if (identifier->state == IdState::idle) {
      if (device_error != 0) return device_error;
      if (error = bind(core, *identifier, *source, std::move(device)); error != 0) return error;
    }
    if (!transition(identifier->state, IdInput::resolve_address)) return EINVAL;
    if (identifier->source.family != destination->family || destination->is_any()) return EINVAL;
    identifier->destination = *destination;
    error = set_state(*identifier, IdInput::resolve_address);
    if (error != 0) return error;
    question = {identifier->key, identifier->device, identifier->source.gid, destination->gid,
                identifier->traffic_class};
  }
  core.run_in_background([&core, question = std::move(question)]() mutable { work_on(core, question); });
  return 0;
}

// --- options ---

int set_id_option(Identifier& identifier, uint32_t option, Bytes value) {
  const auto as_flag = [&](bool& flag) {
    int number = 0;
    if (value.size() != sizeof number) return EINVAL;
    std::memcpy(&number, value.data(), sizeof number);
    flag = number != 0;
    return 0;
  };
  switch (option) {
    case RDMA_OPTION_ID_TOS:
      if (value.size() != 1) return EINVAL;
      identifier.traffic_class = value[0];
      return 0;
    case RDMA_OPTION_ID_REUSEADDR: {
      // The option can be set only before the bind, and cleared at any time (rdma_set_reuseaddr).
      bool reuse = false;
      if (const int error = as_flag(reuse); error != 0) return error;
      if (reuse && identifier.state != IdState::idle) return EINVAL;
      identifier.port_options.reuse = reuse;
      return 0;
    }
    case RDMA_OPTION_ID_AFONLY:
      if (identifier.state != IdState::idle && identifier.state != IdState::bound) return EINVAL;
      return as_flag(identifier.port_options.family_only);
    case RDMA_OPTION_ID_ACK_TIMEOUT: {
      constexpr uint8_t kTimeoutBits = 31;
      if (value.size() != 1 || value[0] > kTimeoutBits) return EINVAL;
      if (identifier.type != IBV_QPT_RC && identifier.type != IBV_QPT_XRC_SEND) return EINVAL;
      identifier.ack_timeout = value[0];
      return 0;
    }
    default:
      return ENOSYS;
  }
}

/// Accepts a path that the program resolved itself (rdma_set_ib_path). On Ethernet it is the path that is
/// already known.
int set_path(const std::shared_ptr<Identifier>& identifier, Bytes value) {
  constexpr uint32_t kWanted = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  constexpr size_t kRecord = sizeof(ib_path_rec_data);
  if (value.size() % kRecord != 0) return EINVAL;
  bool found = false;
  for (size_t at = 0; at < value.size(); at += kRecord) {
    uint32_t flags = 0;
    std::memcpy(&flags, value.data() + at, sizeof flags);
    found = found || flags == kWanted;
  }
  if (!found) return EINVAL;
  if (const int error = set_state(*identifier, IdInput::resolve_route); error != 0) return error;
  CmCore::post(*identifier->queue, event_of(identifier, CmEvent::route_resolved));
  return 0;
}

}  // namespace

int create_id(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_create_id fields;
  rdma_ucm_create_id_resp answer{};
  if (command.out_bytes < sizeof answer) return ENOSPC;
  if (const int error = command.read(fields); error != 0) return error;
  ibv_qp_type type = IBV_QPT_UD;
  switch (fields.ps) {
    case RDMA_PS_TCP:
      type = IBV_QPT_RC;
      break;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      break;
    case RDMA_PS_IB:
      type = static_cast<ibv_qp_type>(fields.qp_type);
      break;
    default:
      return EINVAL;
  }
  const std::lock_guard lock(core.mutex);
  const auto identifier = core.create(queue, fields.ps, type);
  identifier->uid = fields.uid;
  answer.id = identifier->handle;
  const int error = command.answer(fields.response, answer);
  if (error != 0) core.destroy(*identifier);
  return error;
}

int destroy_id(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_destroy_id fields;
  rdma_ucm_destroy_id_resp answer{};
  if (command.out_bytes < sizeof answer) return ENOSPC;
  if (const int error = command.read(fields); error != 0) return error;
  {
    const std::lock_guard lock(core.mutex);
    int error = 0;
    const auto identifier = own_identifier(core, queue, fields.id, error);
    if (identifier == nullptr) return error;
    core.destroy(*identifier);
    answer.events_reported = identifier->events_reported;
  }
  return command.answer(fields.response, answer);
}

int bind_ip(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_bind_ip fields;
  if (const int error = command.read(fields); error != 0) return error;
  const auto endpoint = read_endpoint(bytes_of(&fields.addr, sizeof fields.addr));
  return endpoint ? bind_to(core, queue, fields.id, *endpoint) : EAFNOSUPPORT;
}

int bind_address(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_bind fields;
  if (const int error = command.read(fields); error != 0) return error;
  const auto endpoint = read_endpoint(bytes_of(&fields.addr, sizeof fields.addr));
  if (!endpoint || fields.reserved != 0 || fields.addr_size != address_bytes(endpoint->family)) return EINVAL;
  return bind_to(core, queue, fields.id, *endpoint);
}

int resolve_ip(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_resolve_ip fields;
  if (const int error = command.read(fields); error != 0) return error;
  return resolve_to(core, queue, fields.id, bytes_of(&fields.src_addr, sizeof fields.src_addr),
                    bytes_of(&fields.dst_addr, sizeof fields.dst_addr));
}

int resolve_address(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_resolve_addr fields;
  if (const int error = command.read(fields); error != 0) return error;
  const Bytes source = bytes_of(&fields.src_addr, std::min<size_t>(fields.src_size, sizeof fields.src_addr));
  const Bytes destination =
      bytes_of(&fields.dst_addr, std::min<size_t>(fields.dst_size, sizeof fields.dst_addr));
  const auto fits = [](Bytes bytes, size_t length) {
    const auto endpoint = read_endpoint(bytes);
    return endpoint && address_bytes(endpoint->family) == length;
  };
  if (fields.reserved != 0 || !fits(destination, fields.dst_size)) return EINVAL;
  if (fields.src_size != 0 && !fits(source, fields.src_size)) return EINVAL;
  return resolve_to(core, queue, fields.id, source, destination);
}

int resolve_route(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_resolve_route fields;
  if (const int error = command.read(fields); error != 0) return error;
  const std::lock_guard lock(core.mutex);
  int error = 0;
  const auto identifier = own_identifier(core, queue, fields.id, error);
  if (identifier == nullptr) return error;
  // There is no subnet manager to query: the route is the result of address resolution.
  if (error = set_state(*identifier, IdInput::resolve_route); error != 0) return error;
  CmCore::post(queue, event_of(identifier, CmEvent::route_resolved));
  return 0;
}

int set_option(CmCore& core, EventQueue& queue, const CmCommand& command) {
  constexpr size_t kMaxValueBytes = 4096;  // the kernel's limit too
  rdma_ucm_set_option fields;
  if (const int error = command.read(fields); error != 0) return error;
  const std::lock_guard lock(core.mutex);
  int error = 0;
  const auto identifier = own_identifier(core, queue, fields.id, error);
  if (identifier == nullptr) return error;
  std::array<uint8_t, kMaxValueBytes> buffer;
  if (fields.optlen > buffer.size()) return EINVAL;
  if (error = copy_from_program(buffer.data(), fields.optval, fields.optlen); error != 0) return error;
  const Bytes value = Bytes(buffer).first(fields.optlen);
  if (fields.level == RDMA_OPTION_ID) return set_id_option(*identifier, fields.optname, value);
  if (fields.level == RDMA_OPTION_IB && fields.optname == RDMA_OPTION_IB_PATH)
    return set_path(identifier, value);
  return ENOSYS;
}

}  // namespace faultline::abi
