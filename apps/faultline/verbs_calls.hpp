// SPDX-License-Identifier: BSD-3-Clause
// Verbs by name in the program's global scope. This program links no verbs library: the functions are those
// that an unmodified program gets from LD_PRELOAD.
#pragma once

#include <optional>

#include <infiniband/verbs.h>

#include "stack/include/faultline/faultline.h"

namespace faultline::cli {

struct VerbsCalls {
  decltype(&::faultline_query_guards) query_guards = nullptr;
  decltype(&::faultline_last_error) last_error = nullptr;
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_get_device_name) get_device_name = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  // Its declared type has rdma-core's older structure, a prefix of ibv_port_attr.
  int (*query_port)(ibv_context*, uint8_t, ibv_port_attr*) = nullptr;
  decltype(&::ibv_port_state_str) port_state_text = nullptr;
  decltype(&::ibv_query_gid) query_gid = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  decltype(&::ibv_reg_mr) reg_mr = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&::ibv_wc_status_str) status_text = nullptr;
};

/// Returns nullopt if a name is missing, so if the library is not in this program.
[[nodiscard]] std::optional<VerbsCalls> find_verbs_calls();

}  // namespace faultline::cli
