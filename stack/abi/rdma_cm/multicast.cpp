// SPDX-License-Identifier: BSD-3-Clause
// Commands that join and leave multicast groups. Ethernet has no subnet administrator to query: the group's
// address is sufficient, and the port receives the group's frames once a QP is attached.
#include <algorithm>
#include <cerrno>

#include "stack/abi/rdma_cm/channel.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/wire/link/link.hpp"

namespace faultline::abi {

namespace {

constexpr uint32_t kMulticastQpn = 0xffffff;

int join(CmCore& core, EventQueue& queue, const rdma_ucm_join_mcast& fields, const CmCommand& command) {
  rdma_ucm_create_id_resp answer{};
  if (command.out_bytes < sizeof answer) return ENOSPC;
  const auto group = read_endpoint({reinterpret_cast<const uint8_t*>(&fields.addr), sizeof fields.addr});
  if (!group || fields.addr_size != address_bytes(group->family)) return EINVAL;
  if (fields.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return EINVAL;
  const std::lock_guard lock(core.mutex);
  int error = 0;
  const auto identifier = own_identifier(core, queue, fields.id, error);
  if (identifier == nullptr) return error;
  if (!transition(identifier->state, IdInput::join) || identifier->device == nullptr) return EINVAL;
  if (identifier->type != IBV_QPT_UD || !wire::is_multicast(group->gid)) return EINVAL;

  const auto multicast = core.join(identifier, fields.uid);
  QueuedEvent event = event_of(identifier, CmEvent::multicast_join);
  event.multicast = multicast;
  event.answer.uid = multicast->uid;
  event.answer.id = multicast->handle;
  rdma_ucm_ud_param& param = event.answer.param.ud;
  param.qp_num = kMulticastQpn;
  param.qkey = kDatagramQkey;
  cm::Path path = identifier->path;
  path.av.path.source_gid = identifier->source.gid;
  path.av.path.destination_gid = group->gid;
  path.av.path.traffic_class = identifier->traffic_class;
  path.av.path.hop_limit = verbs::kDefaultHopLimit;
  param.ah_attr = address_attributes(*identifier->device, path);
  answer.id = multicast->handle;
  error = command.answer(fields.response, answer);
  if (error != 0)
    core.leave(*identifier, multicast->handle);
  else
    CmCore::post(queue, std::move(event));
  return error;
}

}  // namespace

int join_ip_multicast(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_join_ip_mcast old;
  if (const int error = command.read(old); error != 0) return error;
  rdma_ucm_join_mcast fields{};
  fields.response = old.response;
  fields.uid = old.uid;
  fields.id = old.id;
  fields.addr_size = static_cast<uint16_t>(address_bytes(old.addr.sin6_family));
  fields.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER;
  std::copy_n(reinterpret_cast<const uint8_t*>(&old.addr), sizeof old.addr,
              reinterpret_cast<uint8_t*>(&fields.addr));
  return join(core, queue, fields, command);
}

int join_multicast(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_join_mcast fields;
  if (const int error = command.read(fields); error != 0) return error;
  return join(core, queue, fields, command);
}

int leave_multicast(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_destroy_id fields;
  rdma_ucm_destroy_id_resp answer{};
  if (command.out_bytes < sizeof answer) return ENOSPC;
  if (const int error = command.read(fields); error != 0) return error;
  {
    const std::lock_guard lock(core.mutex);
    const auto identifier = core.find_joined(fields.id);
    if (identifier == nullptr) return ENOENT;
    if (identifier->queue != &queue) return EINVAL;
    answer.events_reported = core.leave(*identifier, fields.id);
  }
  return command.answer(fields.response, answer);
}

}  // namespace faultline::abi
