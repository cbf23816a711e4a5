// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/rdma_cm/channel.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "odp/copy/fault_handler.hpp"
#include "odp/copy/fault_signals.hpp"
#include "odp/copy/tolerant_copy.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::abi {

namespace {

/// Waits for the oldest event and takes it. Returns 0, EAGAIN if the descriptor is non-blocking, or EINTR.
int take_event(CmCore& core, EventQueue& queue, QueuedEvent& event) {
  queue.last_reader.store(pthread_self(), std::memory_order_relaxed);
  while (true) {
    {
      const std::lock_guard lock(core.mutex);
      if (!queue.events.empty()) {
        event = std::move(queue.events.front());
        queue.events.pop_front();
        if (queue.events.empty()) queue.descriptor.clear();
        ++event.identifier->events_reported;
        if (event.multicast != nullptr) ++event.multicast->events_reported;
        return 0;
      }
    }
    if (const int error = queue.descriptor.wait(); error != 0) return error;
  }
}

/// Puts an event into the channel, as a scenario asks for: there is one kind.
std::function<void(uint32_t)> raiser_of(CmCore& core, EventQueue& queue) {
  return [&core, &queue](uint32_t /*type*/) { on_address_change(core, queue); };
}

int get_event(CmCore& core, EventQueue& queue, const CmCommand& command) {
  // Older programs have no room for the newest fields.
  constexpr size_t kLeast = offsetof(rdma_ucm_event_resp, reserved);
  rdma_ucm_get_event fields;
  if (command.out_bytes < kLeast) return ENOSPC;
  if (const int error = command.read(fields); error != 0) return error;
  QueuedEvent event;
  if (const int error = take_event(core, queue, event); error != 0) return error;
  verbs::note_cm_delivery(event.answer.event, raiser_of(core, queue));
  return command.answer(fields.response, event.answer, kLeast);
}

int migrate_id(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_migrate_id fields;
  if (const int error = command.read(fields); error != 0) return error;
  const auto file = find_descriptor(static_cast<int>(fields.fd));
  auto* const from = dynamic_cast<CmChannel*>(file.get());
  if (from == nullptr)
    return file == nullptr && ::fcntl(static_cast<int>(fields.fd), F_GETFD) < 0 ? ENOENT : EINVAL;
  rdma_ucm_migrate_resp answer{};
  {
    const std::lock_guard lock(core.mutex);
    int error = 0;
    const auto identifier = own_identifier(core, from->queue(), fields.id, error);
    if (identifier == nullptr) return error;
    answer.events_reported = identifier->events_reported;
    if (&from->queue() != &queue) core.move(*identifier, queue);
  }
  return command.answer(fields.response, answer);
}

// Of newer headers of the kernel, in include/uapi/rdma/rdma_user_cm.h.
constexpr size_t kResolveIbService = 23;  // RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE
constexpr size_t kWriteCmEvent = 24;      // RDMA_USER_CM_CMD_WRITE_CM_EVENT
constexpr size_t kCommands = kWriteCmEvent + 1;
struct WriteCmEvent {  // rdma_ucm_write_cm_event
  uint32_t id;
  uint32_t reserved;
  uint32_t event;
  uint32_t status;
  uint64_t argument;
};

/// A service record of InfiniBand's subnet administrator. A port of RoCE has none (rdma_resolve_ib_service()
/// of Linux).
int resolve_ib_service(CmCore& core, EventQueue& queue, const CmCommand& command) {
  uint32_t id = 0;
  if (const int error = command.read(id); error != 0) return error;
  const std::lock_guard lock(core.mutex);
  int error = 0;
  const auto identifier = own_identifier(core, queue, id, error);
  if (identifier == nullptr) return error;
  return identifier->device == nullptr ? EINVAL : EOPNOTSUPP;
}

/// rdma_write_cm_event(3), and rdma_resolve_addrinfo(3) of a name that librdmacm has resolved itself.
int write_event(CmCore& core, EventQueue& queue, const CmCommand& command) {
  WriteCmEvent fields;
  if (const int error = command.read(fields); error != 0) return error;
  const auto kind = static_cast<CmEvent>(fields.event);
  if (kind != CmEvent::user && kind != CmEvent::internal) return EINVAL;
  const std::lock_guard lock(core.mutex);
  int error = 0;
  const auto identifier = own_identifier(core, queue, fields.id, error);
  if (identifier == nullptr) return error;
  QueuedEvent event = event_of(identifier, kind, static_cast<int>(fields.status));
  std::memcpy(&event.answer.param, &fields.argument, sizeof fields.argument);
  CmCore::post(queue, std::move(event));
  return 0;
}

constexpr std::array<CmHandler, kCommands> make_handlers() {
  std::array<CmHandler, kCommands> handlers{};
  handlers[RDMA_USER_CM_CMD_CREATE_ID] = create_id;
  handlers[RDMA_USER_CM_CMD_DESTROY_ID] = destroy_id;
  handlers[RDMA_USER_CM_CMD_BIND_IP] = bind_ip;
  handlers[RDMA_USER_CM_CMD_RESOLVE_IP] = resolve_ip;
  handlers[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = resolve_route;
  handlers[RDMA_USER_CM_CMD_QUERY_ROUTE] = query_route;
  handlers[RDMA_USER_CM_CMD_CONNECT] = connect;
  handlers[RDMA_USER_CM_CMD_LISTEN] = listen;
  handlers[RDMA_USER_CM_CMD_ACCEPT] = accept;
  handlers[RDMA_USER_CM_CMD_REJECT] = reject;
  handlers[RDMA_USER_CM_CMD_DISCONNECT] = disconnect;
  handlers[RDMA_USER_CM_CMD_INIT_QP_ATTR] = init_qp_attributes;
  handlers[RDMA_USER_CM_CMD_GET_EVENT] = get_event;
  handlers[RDMA_USER_CM_CMD_SET_OPTION] = set_option;
  handlers[RDMA_USER_CM_CMD_NOTIFY] = notify;
  handlers[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = join_ip_multicast;
  handlers[RDMA_USER_CM_CMD_LEAVE_MCAST] = leave_multicast;
  handlers[RDMA_USER_CM_CMD_MIGRATE_ID] = migrate_id;
  handlers[RDMA_USER_CM_CMD_QUERY] = query;
  handlers[RDMA_USER_CM_CMD_BIND] = bind_address;
  handlers[RDMA_USER_CM_CMD_RESOLVE_ADDR] = resolve_address;
  handlers[RDMA_USER_CM_CMD_JOIN_MCAST] = join_multicast;
  handlers[kResolveIbService] = resolve_ib_service;
  handlers[kWriteCmEvent] = write_event;
  return handlers;
}
/// librdmacm's calls by command, as a scenario names them.
constexpr std::array<std::string_view, kCommands> kCallNames{
    "rdma_create_id",      "rdma_destroy_id",      "rdma_bind_addr",      "rdma_resolve_addr",
    "rdma_resolve_route",  "rdma_query",           "rdma_connect",        "rdma_listen",
    "rdma_accept",         "rdma_reject",          "rdma_disconnect",     "rdma_init_qp_attr",
    "rdma_get_cm_event",   "rdma_get_option",      "rdma_set_option",     "rdma_notify",
    "rdma_join_multicast", "rdma_leave_multicast", "rdma_migrate_id",     "rdma_query",
    "rdma_bind_addr",      "rdma_resolve_addr",    "rdma_join_multicast", "rdma_resolve_addrinfo",
    "rdma_write_cm_event"};
static_assert(RDMA_USER_CM_CMD_CREATE_ID == 0 && RDMA_USER_CM_CMD_RESOLVE_ROUTE == 4 &&
              RDMA_USER_CM_CMD_CONNECT == 6 && RDMA_USER_CM_CMD_ACCEPT == 8 &&
              RDMA_USER_CM_CMD_GET_EVENT == 12 && RDMA_USER_CM_CMD_NOTIFY == 15 &&
              RDMA_USER_CM_CMD_MIGRATE_ID == 18 && RDMA_USER_CM_CMD_BIND == 20 &&
              RDMA_USER_CM_CMD_RESOLVE_ADDR == 21);
/// Handlers by command. GET_OPTION has none, as in the kernel.
constexpr auto kHandlers = make_handlers();
static_assert(RDMA_USER_CM_CMD_JOIN_MCAST + 1 == kResolveIbService);

int copy(void* to, const void* from, size_t length) {
  odp::install_fault_handler();
  const odp::FaultSignalsOpen open;
  return odp::tolerant_copy(to, from, length) == length ? 0 : EFAULT;
}

}  // namespace

int copy_from_program(void* to, uint64_t from, size_t length) {
  return copy(to, reinterpret_cast<const void*>(from), length);
}

int CmCommand::read_bytes(void* to, size_t length) const {
  return copy(to, in.data(), std::min(length, in.size()));
}

int CmCommand::write_bytes(uint64_t address, const void* from, size_t length, size_t least_bytes) const {
  if (out_bytes < least_bytes) return ENOSPC;
  return copy(reinterpret_cast<void*>(address), from, std::min(length, out_bytes));
}

std::shared_ptr<Identifier> own_identifier(const CmCore& core, const EventQueue& queue, uint32_t handle,
                                           int& error) {
  auto identifier = core.find(handle);
  error = identifier == nullptr ? ENOENT : identifier->queue != &queue ? EINVAL : 0;
  return error == 0 ? identifier : nullptr;
}

CmChannel::CmChannel(Sight opened) : OpenFile(std::move(opened)) {}

CmChannel::~CmChannel() {
  if (counted_) CmCore::instance().remove_queue(queue_);
}

int CmChannel::open(const Sight& sight, int flags) {
  auto channel = std::make_shared<CmChannel>(sight);
  if (const int error = channel->queue_.descriptor.open(); error != 0) {
    errno = error;
    return -1;
  }
  CmCore::instance().add_queue(channel->queue_);
  channel->counted_ = true;
  const int own = channel->queue_.descriptor.number();
  const int number = ::fcntl(own, (flags & O_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
  if (number < 0) return -1;
  if ((flags & O_NONBLOCK) != 0) ::fcntl(number, F_SETFL, O_NONBLOCK);
  if (add_descriptor(number, std::move(channel))) return number;
  ::close(number);
  errno = EMFILE;
  return -1;
}

void CmChannel::before_close() {
  const pthread_t reader = queue_.last_reader.load(std::memory_order_relaxed);
  if (reader == pthread_t{} || reader == pthread_self()) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

ssize_t CmChannel::write(const void* bytes, size_t length) {
  rdma_ucm_cmd_hdr header{};
  if (length < sizeof header) return -EINVAL;
  if (const int error = copy(&header, bytes, sizeof header); error != 0) return -error;
  if (header.cmd >= kHandlers.size() || header.in + sizeof header > length) return -EINVAL;
  const CmHandler handler = kHandlers[header.cmd];
  if (handler == nullptr) return -ENOSYS;
  const int refused = verbs::trouble_of_cm(kCallNames[header.cmd], raiser_of(CmCore::instance(), queue_));
  if (refused != 0) return -refused;
  const CmCommand command{{static_cast<const uint8_t*>(bytes) + sizeof header, header.in}, header.out};
  try {
    const int error = handler(CmCore::instance(), queue_, command);
    return error == 0 ? static_cast<ssize_t>(length) : -error;
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  }
}

}  // namespace faultline::abi
