// SPDX-License-Identifier: BSD-3-Clause
#include "stack/trouble/calls.hpp"

#include <algorithm>
#include <array>

namespace faultline::trouble {
namespace {

constexpr auto kVerbsCalls = std::to_array<std::string_view>({
    "ibv_get_device_list",
    "ibv_open_device",
    "ibv_close_device",
    "ibv_import_device",
    "ibv_query_device",
    "ibv_query_port",
    "ibv_query_gid",
    "ibv_query_pkey",
    "ibv_query_rt_values",
    "ibv_get_async_event",
    "ibv_alloc_pd",
    "ibv_alloc_parent_domain",
    "ibv_import_pd",
    "ibv_dealloc_pd",
    "ibv_alloc_td",
    "ibv_dealloc_td",
    "ibv_reg_mr",
    "ibv_rereg_mr",
    "ibv_import_mr",
    "ibv_dereg_mr",
    "ibv_advise_mr",
    "ibv_alloc_buf",
    "ibv_alloc_mw",
    "ibv_bind_mw",
    "ibv_dealloc_mw",
    "ibv_alloc_dm",
    "ibv_import_dm",
    "ibv_free_dm",
    "ibv_memcpy_to_dm",
    "ibv_memcpy_from_dm",
    "ibv_create_comp_channel",
    "ibv_destroy_comp_channel",
    "ibv_get_cq_event",
    "ibv_create_cq",
    "ibv_resize_cq",
    "ibv_modify_cq",
    "ibv_destroy_cq",
    "ibv_create_comp_cntr",
    "ibv_qp_attach_comp_cntr",
    "ibv_destroy_comp_cntr",
    "ibv_poll_cq",
    "ibv_start_poll",
    "ibv_req_notify_cq",
    "ibv_create_qp",
    "ibv_open_qp",
    "ibv_modify_qp",
    "ibv_query_qp",
    "ibv_destroy_qp",
    "ibv_attach_mcast",
    "ibv_detach_mcast",
    "ibv_create_srq",
    "ibv_modify_srq",
    "ibv_query_srq",
    "ibv_destroy_srq",
    "ibv_open_xrcd",
    "ibv_close_xrcd",
    "ibv_create_ah",
    "ibv_init_ah_from_wc",
    "ibv_resolve_eth_l2_from_gid",
    "ibv_destroy_ah",
    "ibv_post_send",
    "ibv_wr_complete",
    "ibv_post_recv",
    "ibv_post_srq_recv",
});

/// As stack/abi/rdma_cm/channel.cpp names them.
constexpr auto kCmCalls = std::to_array<std::string_view>({
    "rdma_create_id",        "rdma_bind_addr",      "rdma_resolve_addr",   "rdma_resolve_route",
    "rdma_connect",          "rdma_listen",         "rdma_accept",         "rdma_reject",
    "rdma_disconnect",       "rdma_init_qp_attr",   "rdma_get_cm_event",   "rdma_set_option",
    "rdma_notify",           "rdma_query",          "rdma_join_multicast", "rdma_migrate_id",
    "rdma_resolve_addrinfo", "rdma_write_cm_event", "rdma_destroy_id",     "rdma_leave_multicast",
});

/// By ibv_event_type.
constexpr auto kAsyncEvents = std::to_array<std::string_view>({
    "IBV_EVENT_CQ_ERR",
    "IBV_EVENT_QP_FATAL",
    "IBV_EVENT_QP_REQ_ERR",
    "IBV_EVENT_QP_ACCESS_ERR",
    "IBV_EVENT_COMM_EST",
    "IBV_EVENT_SQ_DRAINED",
    "IBV_EVENT_PATH_MIG",
    "IBV_EVENT_PATH_MIG_ERR",
    "IBV_EVENT_DEVICE_FATAL",
    "IBV_EVENT_PORT_ACTIVE",
    "IBV_EVENT_PORT_ERR",
    "IBV_EVENT_LID_CHANGE",
    "IBV_EVENT_PKEY_CHANGE",
    "IBV_EVENT_SM_CHANGE",
    "IBV_EVENT_SRQ_ERR",
    "IBV_EVENT_SRQ_LIMIT_REACHED",
    "IBV_EVENT_QP_LAST_WQE_REACHED",
    "IBV_EVENT_CLIENT_REREGISTER",
    "IBV_EVENT_GID_CHANGE",
});

/// By rdma_cm_event_type.
constexpr auto kCmEventNames = std::to_array<std::string_view>({
    "RDMA_CM_EVENT_ADDR_RESOLVED",  "RDMA_CM_EVENT_ADDR_ERROR",        "RDMA_CM_EVENT_ROUTE_RESOLVED",
    "RDMA_CM_EVENT_ROUTE_ERROR",    "RDMA_CM_EVENT_CONNECT_REQUEST",   "RDMA_CM_EVENT_CONNECT_RESPONSE",
    "RDMA_CM_EVENT_CONNECT_ERROR",  "RDMA_CM_EVENT_UNREACHABLE",       "RDMA_CM_EVENT_REJECTED",
    "RDMA_CM_EVENT_ESTABLISHED",    "RDMA_CM_EVENT_DISCONNECTED",      "RDMA_CM_EVENT_DEVICE_REMOVAL",
    "RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR",   "RDMA_CM_EVENT_ADDR_CHANGE",
    "RDMA_CM_EVENT_TIMEWAIT_EXIT",  "RDMA_CM_EVENT_ADDRINFO_RESOLVED", "RDMA_CM_EVENT_ADDRINFO_ERROR",
    "RDMA_CM_EVENT_USER",           "RDMA_CM_EVENT_INTERNAL",
});

bool fits_one(std::string_view pattern, std::span<const std::string_view> names) {
  return std::ranges::any_of(names, [pattern](std::string_view name) { return fits(pattern, name); });
}

std::string_view name_at(std::span<const std::string_view> names, uint32_t index) {
  return index < names.size() ? names[index] : std::string_view();
}

}  // namespace

std::span<const std::string_view> verbs_calls() {
  return kVerbsCalls;
}

bool is_known_call(std::string_view pattern) {
  return fits_one(pattern, kVerbsCalls) || fits_one(pattern, kCmCalls);
}

bool is_release(std::string_view call) {
  constexpr auto kStarts = std::to_array<std::string_view>(
      {"ibv_destroy", "ibv_dealloc", "ibv_dereg", "ibv_close", "ibv_free", "ibv_detach", "rdma_destroy"});
  return std::ranges::any_of(kStarts, [call](std::string_view start) { return call.starts_with(start); });
}

bool works_without_device(std::string_view call) {
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"ibv_poll_cq", "ibv_start_poll", "ibv_get_cq_event", "ibv_get_async_event", "ibv_get_device_list"});
  return is_release(call) || std::ranges::find(kOthers, call) != kOthers.end();
}

std::string_view async_event_name(uint32_t type) {
  return name_at(kAsyncEvents, type);
}

std::string_view cm_event_name(uint32_t type) {
  return name_at(kCmEventNames, type);
}

bool is_async_event(std::string_view pattern) {
  return fits_one(pattern, kAsyncEvents);
}

bool is_cm_event(std::string_view pattern) {
  return fits_one(pattern, kCmEventNames);
}

bool fits(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return true;
  if (pattern.back() != '*') return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

}  // namespace faultline::trouble
