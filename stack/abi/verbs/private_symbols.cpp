// SPDX-License-Identifier: BSD-3-Clause
// The names that rdma-core exports to its own providers (IBVERBS_PRIVATE_34). UCX, pyverbs or perftest load
// libmlx5 and the like, which must resolve these names. None of the providers' devices are ours, so their
// commands to the kernel fail.
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "stack/verbs/objects/objects.hpp"

namespace faultline::abi {

// Commands to the kernel: each returns an errno.
#define FAULTLINE_NO_COMMAND(name) \
  FAULTLINE_VERB int name(...) {   \
    errno = EOPNOTSUPP;            \
    return EOPNOTSUPP;             \
  }
FAULTLINE_NO_COMMAND(ibv_cmd_advise_mr)
FAULTLINE_NO_COMMAND(ibv_cmd_alloc_dm)
FAULTLINE_NO_COMMAND(ibv_cmd_alloc_mw)
FAULTLINE_NO_COMMAND(ibv_cmd_alloc_pd)
FAULTLINE_NO_COMMAND(ibv_cmd_attach_mcast)
FAULTLINE_NO_COMMAND(ibv_cmd_close_xrcd)
FAULTLINE_NO_COMMAND(ibv_cmd_create_ah)
FAULTLINE_NO_COMMAND(ibv_cmd_create_counters)
FAULTLINE_NO_COMMAND(ibv_cmd_create_cq)
FAULTLINE_NO_COMMAND(ibv_cmd_create_cq_ex)
FAULTLINE_NO_COMMAND(ibv_cmd_create_cq_ex2)
FAULTLINE_NO_COMMAND(ibv_cmd_create_flow)
FAULTLINE_NO_COMMAND(ibv_cmd_create_flow_action_esp)
FAULTLINE_NO_COMMAND(ibv_cmd_create_qp)
FAULTLINE_NO_COMMAND(ibv_cmd_create_qp_ex2)
FAULTLINE_NO_COMMAND(ibv_cmd_create_qp_ex)
FAULTLINE_NO_COMMAND(ibv_cmd_create_rwq_ind_table)
FAULTLINE_NO_COMMAND(ibv_cmd_create_srq)
FAULTLINE_NO_COMMAND(ibv_cmd_create_srq_ex)
FAULTLINE_NO_COMMAND(ibv_cmd_create_wq)
FAULTLINE_NO_COMMAND(ibv_cmd_dealloc_mw)
FAULTLINE_NO_COMMAND(ibv_cmd_dealloc_pd)
FAULTLINE_NO_COMMAND(ibv_cmd_dereg_mr)
FAULTLINE_NO_COMMAND(ibv_cmd_destroy_ah)
FAULTLINE_NO_COMMAND(ibv_cmd_destroy_counters)
FAULTLINE_NO_COMMAND(ibv_cmd_destroy_cq)
FAULTLINE_NO_COMMAND(ibv_cmd_destroy_flow)
FAULTLINE_NO_COMMAND(ibv_cmd_destroy_flow_action)
FAULTLINE_NO_COMMAND(ibv_cmd_destroy_qp)
FAULTLINE_NO_COMMAND(ibv_cmd_destroy_rwq_ind_table)
FAULTLINE_NO_COMMAND(ibv_cmd_destroy_srq)
FAULTLINE_NO_COMMAND(ibv_cmd_destroy_wq)
FAULTLINE_NO_COMMAND(ibv_cmd_detach_mcast)
FAULTLINE_NO_COMMAND(ibv_cmd_free_dm)
FAULTLINE_NO_COMMAND(ibv_cmd_get_context)
FAULTLINE_NO_COMMAND(ibv_cmd_modify_cq)
FAULTLINE_NO_COMMAND(ibv_cmd_modify_flow_action_esp)
FAULTLINE_NO_COMMAND(ibv_cmd_modify_qp)
FAULTLINE_NO_COMMAND(ibv_cmd_modify_qp_ex)
FAULTLINE_NO_COMMAND(ibv_cmd_modify_srq)
FAULTLINE_NO_COMMAND(ibv_cmd_modify_wq)
FAULTLINE_NO_COMMAND(ibv_cmd_open_qp)
FAULTLINE_NO_COMMAND(ibv_cmd_open_xrcd)
FAULTLINE_NO_COMMAND(ibv_cmd_poll_cq)
FAULTLINE_NO_COMMAND(ibv_cmd_post_recv)
FAULTLINE_NO_COMMAND(ibv_cmd_post_send)
FAULTLINE_NO_COMMAND(ibv_cmd_post_srq_recv)
FAULTLINE_NO_COMMAND(ibv_cmd_query_context)
FAULTLINE_NO_COMMAND(ibv_cmd_query_device_any)
FAULTLINE_NO_COMMAND(ibv_cmd_query_mr)
FAULTLINE_NO_COMMAND(ibv_cmd_query_port)
FAULTLINE_NO_COMMAND(ibv_cmd_query_qp)
FAULTLINE_NO_COMMAND(ibv_cmd_query_srq)
FAULTLINE_NO_COMMAND(ibv_cmd_read_counters)
FAULTLINE_NO_COMMAND(ibv_cmd_reg_dm_mr)
FAULTLINE_NO_COMMAND(ibv_cmd_reg_dmabuf_mr)
FAULTLINE_NO_COMMAND(ibv_cmd_reg_mr)
FAULTLINE_NO_COMMAND(ibv_cmd_req_notify_cq)
FAULTLINE_NO_COMMAND(ibv_cmd_rereg_mr)
FAULTLINE_NO_COMMAND(ibv_cmd_resize_cq)
FAULTLINE_NO_COMMAND(execute_ioctl)
#undef FAULTLINE_NO_COMMAND

FAULTLINE_VERB unsigned int __ioctl_final_num_attrs(unsigned int /*attributes*/, ...) {
  return 0;
}

// Creation of providers' devices.
FAULTLINE_VERB void* _verbs_init_and_alloc_context(...) {
  return verbs::fail(EOPNOTSUPP);
}
FAULTLINE_VERB ibv_context* verbs_open_device(ibv_device* /*device*/, void* /*private_data*/) {
  return verbs::fail(EOPNOTSUPP);
}
FAULTLINE_VERB void verbs_uninit_context(verbs_context* /*context*/) {}
FAULTLINE_VERB void verbs_set_ops(verbs_context* /*context*/, const void* /*ops*/) {}
FAULTLINE_VERB void verbs_init_cq(ibv_cq* /*cq*/, ibv_context* /*context*/, ibv_comp_channel* /*channel*/,
                                  void* /*cq_context*/) {}

// For providers' traces, from a release between 44 and 56 on.
FAULTLINE_VERB const char* ibv_wr_opcode_str(ibv_wr_opcode opcode) {
  static constexpr std::array<const char*, 16> kNames{"IBV_WR_RDMA_WRITE",
                                                      "IBV_WR_RDMA_WRITE_WITH_IMM",
                                                      "IBV_WR_SEND",
                                                      "IBV_WR_SEND_WITH_IMM",
                                                      "IBV_WR_RDMA_READ",
                                                      "IBV_WR_ATOMIC_CMP_AND_SWP",
                                                      "IBV_WR_ATOMIC_FETCH_AND_ADD",
                                                      "IBV_WR_LOCAL_INV",
                                                      "IBV_WR_BIND_MW",
                                                      "IBV_WR_SEND_WITH_INV",
                                                      "IBV_WR_TSO",
                                                      "IBV_WR_DRIVER1",
                                                      nullptr,
                                                      nullptr,
                                                      "IBV_WR_FLUSH",
                                                      "IBV_WR_ATOMIC_WRITE"};
  const size_t number = opcode;
  return number < kNames.size() && kNames[number] != nullptr ? kNames[number] : "unknown";
}

// A provider's constructor calls this; the provider is never asked for devices.
FAULTLINE_VERB void verbs_register_driver_34(const void* /*ops*/) {}

FAULTLINE_VERB void __verbs_log(verbs_context* /*context*/, uint32_t /*level*/, const char* /*format*/, ...) {
}

extern "C" {
/// A variable that providers read.
extern __attribute__((visibility("default"))) bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;
}

}  // namespace faultline::abi
