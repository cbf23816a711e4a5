// SPDX-License-Identifier: BSD-3-Clause
// Commands that query an identifier: its addresses, its path, its QP's attributes.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include <endian.h>
#include <infiniband/sa.h>

#include "stack/abi/rdma_cm/channel.hpp"
#include "stack/verbs/objects/limits.hpp"

namespace faultline::abi {

namespace {

template <typename Address>
std::span<uint8_t> room_of(Address& address) {
  return {reinterpret_cast<uint8_t*>(&address), sizeof address};
}

bool has_path(const Identifier& identifier) {
  return identifier.state == IdState::route_resolved || identifier.state == IdState::connected ||
         identifier.state == IdState::disconnected;
}

void copy_gid(const wire::Gid& gid, uint8_t (&to)[16]) {
  std::copy(gid.bytes.begin(), gid.bytes.end(), to);
}

ib_user_path_rec path_record(const cm::Path& path) {
  constexpr uint8_t kExactly = 2;  // selector value
  const wire::PathHeader& header = path.av.path;
  ib_user_path_rec record{};
  copy_gid(header.destination_gid, record.dgid);
  copy_gid(header.source_gid, record.sgid);
  record.flow_label = htobe32(header.flow_label);
  record.reversible = 1;
  record.mtu = static_cast<uint32_t>(path.mtu);
  record.pkey = htobe16(path.pkey);
  record.hop_limit = header.hop_limit;
  record.traffic_class = header.traffic_class;
  record.numb_path = 1;
  record.mtu_selector = record.rate_selector = record.packet_life_time_selector = kExactly;
  record.rate = path.rate;
  record.packet_life_time = path.packet_lifetime;
  return record;
}

/// Returns the same record in the wire format of IBA 15.2.5.16.
ibv_path_record packed_path_record(const cm::Path& path) {
  constexpr uint8_t kExactly = 2U << 6, kReversibleOnePath = 0x81;
  constexpr unsigned kFlowLabelShift = 8;
  const wire::PathHeader& header = path.av.path;
  ibv_path_record record{};
  copy_gid(header.destination_gid, record.dgid.raw);
  copy_gid(header.source_gid, record.sgid.raw);
  record.flowlabel_hoplimit = htobe32(header.flow_label << kFlowLabelShift | header.hop_limit);
  record.tclass = header.traffic_class;
  record.reversible_numpath = kReversibleOnePath;
  record.pkey = htobe16(path.pkey);
  record.mtu = static_cast<uint8_t>(kExactly | static_cast<uint8_t>(path.mtu));
  record.rate = static_cast<uint8_t>(kExactly | path.rate);
  record.packetlifetime = static_cast<uint8_t>(kExactly | path.packet_lifetime);
  return record;
}

template <typename Answer>
void fill_device(const Identifier& identifier, Answer& answer) {
  answer.node_guid = identifier.device->guid_be();
  answer.port_num = verbs::kPortNumber;
  answer.ibdev_index = static_cast<uint32_t>(identifier.device->index());
}

int query_addresses(const Identifier& identifier, const rdma_ucm_query& fields, const CmCommand& command) {
  rdma_ucm_query_addr_resp answer{};
  answer.src_size = static_cast<uint16_t>(
      write_endpoint(identifier.source, identifier.port_space, room_of(answer.src_addr)));
  answer.dst_size = static_cast<uint16_t>(
      write_endpoint(identifier.destination, identifier.port_space, room_of(answer.dst_addr)));
  if (identifier.device != nullptr) {
    fill_device(identifier, answer);
    answer.pkey = htobe16(wire::kDefaultPkey);
  }
  return command.answer(fields.response, answer, offsetof(rdma_ucm_query_addr_resp, ibdev_index));
}

int query_gids(const Identifier& identifier, const rdma_ucm_query& fields, const CmCommand& command) {
  rdma_ucm_query_addr_resp answer{};
  if (identifier.device != nullptr) {
    fill_device(identifier, answer);
    answer.pkey = htobe16(wire::kDefaultPkey);
  }
  answer.src_size = static_cast<uint16_t>(
      write_ib_endpoint(identifier.source, identifier.port_space, room_of(answer.src_addr)));
  answer.dst_size = static_cast<uint16_t>(
      write_ib_endpoint(identifier.destination, identifier.port_space, room_of(answer.dst_addr)));
  return command.answer(fields.response, answer, offsetof(rdma_ucm_query_addr_resp, ibdev_index));
}

int query_paths(const Identifier& identifier, const rdma_ucm_query& fields, const CmCommand& command) {
  struct Answer {
    uint32_t count = 0, reserved = 0;
    ibv_path_data path{};
  } answer;
  if (has_path(identifier)) {
    answer.count = 1;
    answer.path.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
    answer.path.path = packed_path_record(identifier.path);
  }
  return command.answer(fields.response, answer, sizeof(rdma_ucm_query_path_resp));
}

// --- QP attributes, as the kernel's rdma_init_qp_attr and ib_cm_init_qp_attr return them ---

void fill_init(ib_uverbs_qp_attr& answer, uint32_t access_flags) {
  answer.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  answer.port_num = verbs::kPortNumber;
  answer.qp_access_flags = access_flags;
}

void fill_ready_to_receive(const Identifier& identifier, const cm::QpSettings& settings,
                           ib_uverbs_qp_attr& answer) {
  // 655 ms, the longest value (IBA 9.7.5.2.8), which the kernel sets (cm_init_qp_rtr_attr). Programs retry
  // five times by default: with a short timer they give up a receiver that a busy machine has left alone for
  // some milliseconds.
  constexpr uint8_t kRnrTimer = 0;
  answer.qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  answer.ah_attr = address_attributes(*identifier.device, settings.path);
  answer.path_mtu = static_cast<uint32_t>(settings.path.mtu);
  answer.dest_qp_num = settings.remote_qpn;
  answer.rq_psn = identifier.starting_psn;
  if (identifier.type != IBV_QPT_RC && identifier.type != IBV_QPT_XRC_RECV) return;
  answer.qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  answer.max_dest_rd_atomic = settings.max_dest_rd_atomic;
  answer.min_rnr_timer = kRnrTimer;
}

void fill_ready_to_send(const Identifier& identifier, const cm::QpSettings& settings,
                        ib_uverbs_qp_attr& answer) {
  answer.qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  answer.sq_psn = settings.sq_psn;
  if (identifier.type == IBV_QPT_RC || identifier.type == IBV_QPT_XRC_SEND) {
    answer.qp_attr_mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    answer.retry_cnt = settings.retry_count;
    answer.rnr_retry = settings.rnr_retry_count;
    answer.max_rd_atomic = settings.max_rd_atomic;
  }
  if (identifier.type == IBV_QPT_UC) return;
  answer.qp_attr_mask |= IBV_QP_TIMEOUT;
  answer.timeout = identifier.ack_timeout.value_or(settings.timeout);
}

int fill_attributes(const Identifier& identifier, ib_uverbs_qp_attr& answer) {
  if (identifier.device == nullptr) return EINVAL;
  if (identifier.type == IBV_QPT_UD) {
    answer.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    answer.port_num = verbs::kPortNumber;
    answer.qkey = kDatagramQkey;
    return 0;
  }
  if (identifier.connection == 0) {
    fill_init(answer, 0);
    return 0;
  }
  cm::QpSettings settings;
  const bool known = identifier.device->service().with([&](cm::Manager& manager, TimeNs /*now*/) {
    return manager.settings(identifier.connection, settings);
  });
  if (!known) return EINVAL;
  switch (answer.qp_state) {
    case IBV_QPS_INIT: {
      const bool serves = settings.max_dest_rd_atomic != 0;
      fill_init(answer,
                static_cast<uint32_t>(IBV_ACCESS_REMOTE_WRITE) |
                    (serves ? static_cast<uint32_t>(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC) : 0U));
      return 0;
    }
    case IBV_QPS_RTR:
      // The peer's QPN is known once its REP or REQ has arrived.
      if (settings.remote_qpn == 0) return EINVAL;
      fill_ready_to_receive(identifier, settings, answer);
      return 0;
    case IBV_QPS_RTS:
      if (settings.remote_qpn == 0) return EINVAL;
      fill_ready_to_send(identifier, settings, answer);
      return 0;
    default:
      return EINVAL;
  }
}

}  // namespace

int query_route(CmCore& core, EventQueue& queue, const CmCommand& command) {
  constexpr size_t kLeast = offsetof(rdma_ucm_query_route_resp, ibdev_index);
  rdma_ucm_query fields;
  if (command.out_bytes < kLeast) return ENOSPC;
  if (const int error = command.read(fields); error != 0) return error;
  const std::lock_guard lock(core.mutex);
  int error = 0;
  const auto identifier = own_identifier(core, queue, fields.id, error);
  if (identifier == nullptr) return error;
  rdma_ucm_query_route_resp answer{};
  // The struct has no room for AF_IB addresses.
  if (identifier->source.family != kFamilyIb)
    write_endpoint(identifier->source, identifier->port_space, room_of(answer.src_addr));
  if (identifier->destination.family != kFamilyIb)
    write_endpoint(identifier->destination, identifier->port_space, room_of(answer.dst_addr));
  if (identifier->device != nullptr) {
    fill_device(*identifier, answer);
    if (has_path(*identifier)) {
      answer.num_paths = 1;
      answer.ib_route[0] = path_record(identifier->path);
    } else {
      copy_gid(identifier->source.gid, answer.ib_route[0].sgid);
      copy_gid(identifier->destination.gid, answer.ib_route[0].dgid);
      answer.ib_route[0].pkey = htobe16(wire::kDefaultPkey);
    }
  }
  return command.answer(fields.response, answer, kLeast);
}

int query(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_query fields;
  if (const int error = command.read(fields); error != 0) return error;
  const std::lock_guard lock(core.mutex);
  int error = 0;
  const auto identifier = own_identifier(core, queue, fields.id, error);
  if (identifier == nullptr) return error;
  switch (fields.option) {
    case RDMA_USER_CM_QUERY_ADDR:
      return query_addresses(*identifier, fields, command);
    case RDMA_USER_CM_QUERY_PATH:
      return query_paths(*identifier, fields, command);
    case RDMA_USER_CM_QUERY_GID:
      return query_gids(*identifier, fields, command);
    default:
      return ENOSYS;
  }
}

int init_qp_attributes(CmCore& core, EventQueue& queue, const CmCommand& command) {
  rdma_ucm_init_qp_attr fields;
  ib_uverbs_qp_attr answer{};
  if (command.out_bytes < sizeof answer) return ENOSPC;
  if (const int error = command.read(fields); error != 0) return error;
  if (fields.qp_state > IBV_QPS_ERR) return EINVAL;
  const std::lock_guard lock(core.mutex);
  int error = 0;
  const auto identifier = own_identifier(core, queue, fields.id, error);
  if (identifier == nullptr) return error;
  answer.qp_state = fields.qp_state;
  if (error = fill_attributes(*identifier, answer); error != 0) return error;
  return command.answer(fields.response, answer);
}

}  // namespace faultline::abi
