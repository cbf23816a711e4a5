// SPDX-License-Identifier: BSD-3-Clause
// The names that rdma-core exports to its own providers (IBVERBS_PRIVATE_*). UCX, pyverbs or perftest load
// libmlx5 and the like, which must resolve these names. None of the providers' devices are ours, so their
// commands to the kernel fail.
//
// rdma-core changes the version when a provider's structures change, so each release's providers ask for
// their own. No structure is read here, so one function serves every version. It needs a name that differs
// from each exported one: the linker hides a name that has versions of its own beside the map's.
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "stack/abi/verbs/private_versions.hpp"
#include "stack/verbs/objects/objects.hpp"

namespace faultline::abi {

// Commands to the kernel: each returns an errno.
FAULTLINE_VERB int private_no_command(...) {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}
FAULTLINE_PRIVATE(ibv_cmd_advise_mr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_alloc_dm, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_alloc_mw, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_alloc_pd, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_attach_mcast, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_close_xrcd, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_ah, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_counters, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_cq, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_cq_ex, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_cq_ex2, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_flow, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_flow_action_esp, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_qp, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_qp_ex2, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_qp_ex, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_rwq_ind_table, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_srq, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_srq_ex, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_wq, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_dealloc_mw, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_dealloc_pd, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_dereg_mr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_destroy_ah, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_destroy_counters, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_destroy_cq, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_destroy_flow, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_destroy_flow_action, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_destroy_qp, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_destroy_rwq_ind_table, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_destroy_srq, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_destroy_wq, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_detach_mcast, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_free_dm, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_get_context, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_modify_cq, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_modify_flow_action_esp, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_modify_qp, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_modify_qp_ex, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_modify_srq, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_modify_wq, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_open_qp, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_open_xrcd, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_poll_cq, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_post_recv, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_post_send, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_post_srq_recv, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_query_context, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_query_device_any, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_query_mr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_query_port, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_query_qp, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_query_srq, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_read_counters, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_reg_dm_mr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_reg_dmabuf_mr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_reg_mr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_req_notify_cq, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_rereg_mr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_resize_cq, private_no_command);
FAULTLINE_PRIVATE(execute_ioctl, private_no_command);
// Of rdma-core 57 and later.
FAULTLINE_PRIVATE(ibv_cmd_alloc_dmah, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_create_comp_cntr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_destroy_comp_cntr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_export_dmabuf_fd, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_free_dmah, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_inc_comp_cntr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_inc_err_comp_cntr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_qp_attach_comp_cntr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_query_comp_cntr_caps, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_query_port_speed, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_read_comp_cntr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_read_err_comp_cntr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_reg_mr_ex, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_set_comp_cntr, private_no_command);
FAULTLINE_PRIVATE(ibv_cmd_set_err_comp_cntr, private_no_command);

FAULTLINE_VERB unsigned int private_no_attributes(unsigned int /*attributes*/, ...) {
  return 0;
}
FAULTLINE_PRIVATE(__ioctl_final_num_attrs, private_no_attributes);

// Creation of providers' devices and of their memory.
FAULTLINE_VERB void* private_no_object(...) {
  return verbs::fail(EOPNOTSUPP);
}
FAULTLINE_PRIVATE(_verbs_init_and_alloc_context, private_no_object);
FAULTLINE_PRIVATE(verbs_open_device, private_no_object);
FAULTLINE_PRIVATE(ibv_dmabuf_heap_alloc, private_no_object);
FAULTLINE_PRIVATE(ibv_dmabuf_heap_cc_shared_init, private_no_object);

// A provider's constructor registers it; the provider is never asked for devices. The rest is called for
// objects that no provider has.
FAULTLINE_VERB void private_nothing(...) {}
FAULTLINE_PRIVATE(verbs_init_cq, private_nothing);
FAULTLINE_PRIVATE(verbs_set_ops, private_nothing);
FAULTLINE_PRIVATE(verbs_uninit_context, private_nothing);
FAULTLINE_PRIVATE(__verbs_log, private_nothing);
FAULTLINE_PRIVATE(ibv_dmabuf_heap_destroy, private_nothing);
FAULTLINE_PRIVATE(ibv_dmabuf_heap_free, private_nothing);
#define FAULTLINE_REGISTER(version) \
  FAULTLINE_PRIVATE_IN(verbs_register_driver_##version, private_nothing, version);
__asm__(".symver private_nothing,verbs_register_driver_34@@IBVERBS_PRIVATE_34");
FAULTLINE_PRIVATE_RELEASES(FAULTLINE_REGISTER)
#undef FAULTLINE_REGISTER

// For providers' traces, from a release between 44 and 56 on.
FAULTLINE_VERB const char* private_opcode_name(ibv_wr_opcode opcode) {
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
FAULTLINE_PRIVATE(ibv_wr_opcode_str, private_opcode_name);

extern "C" {
/// A variable that providers read.
extern __attribute__((visibility("default"))) bool private_allow_disassociate;
bool private_allow_disassociate = false;
}
FAULTLINE_PRIVATE(verbs_allow_disassociate_destroy, private_allow_disassociate);

}  // namespace faultline::abi
