// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/verbs_calls.hpp"

#include <type_traits>

#include <dlfcn.h>

namespace faultline::cli {

std::optional<VerbsCalls> find_verbs_calls() {
  VerbsCalls calls;
  bool has_all = true;
  const auto find = [&has_all](auto& call, const char* name) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(RTLD_DEFAULT, name));
    has_all = has_all && call != nullptr;
  };
  find(calls.query_guards, "faultline_query_guards");
  find(calls.last_error, "faultline_last_error");
  find(calls.get_device_list, "ibv_get_device_list");
  find(calls.free_device_list, "ibv_free_device_list");
  find(calls.get_device_name, "ibv_get_device_name");
  find(calls.open_device, "ibv_open_device");
  find(calls.close_device, "ibv_close_device");
  find(calls.query_device, "ibv_query_device");
  find(calls.query_port, "ibv_query_port");
  find(calls.port_state_text, "ibv_port_state_str");
  find(calls.query_gid, "ibv_query_gid");
  find(calls.alloc_pd, "ibv_alloc_pd");
  find(calls.dealloc_pd, "ibv_dealloc_pd");
  find(calls.reg_mr, "ibv_reg_mr");
  find(calls.dereg_mr, "ibv_dereg_mr");
  find(calls.create_cq, "ibv_create_cq");
  find(calls.destroy_cq, "ibv_destroy_cq");
  find(calls.create_qp, "ibv_create_qp");
  find(calls.modify_qp, "ibv_modify_qp");
  find(calls.destroy_qp, "ibv_destroy_qp");
  find(calls.status_text, "ibv_wc_status_str");
  if (!has_all) return std::nullopt;
  return calls;
}

}  // namespace faultline::cli
