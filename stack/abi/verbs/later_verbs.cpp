// SPDX-License-Identifier: BSD-3-Clause
// Verbs of rdma-core releases after the one whose headers are used here (ibv_reg_mr_ex(3),
// ibv_create_comp_cntr(3) and the like). A program that was linked with a later release starts, and learns
// that the device does not support them.
#include <cerrno>

#include "stack/verbs/objects/objects.hpp"

namespace faultline::abi {

#define FAULTLINE_LATER_OBJECT(name) \
  FAULTLINE_VERB void* name(...) {   \
    return verbs::fail(EOPNOTSUPP);  \
  }
// Returns an errno.
#define FAULTLINE_LATER_CALL(name) \
  FAULTLINE_VERB int name(...) {   \
    errno = EOPNOTSUPP;            \
    return EOPNOTSUPP;             \
  }
// Returns a descriptor, or -1 with errno.
#define FAULTLINE_LATER_DESCRIPTOR(name) \
  FAULTLINE_VERB int name(...) {         \
    errno = EOPNOTSUPP;                  \
    return -1;                           \
  }
FAULTLINE_LATER_OBJECT(ibv_alloc_buf)
FAULTLINE_LATER_OBJECT(ibv_alloc_dmah)
FAULTLINE_LATER_OBJECT(ibv_create_comp_cntr)
FAULTLINE_LATER_OBJECT(ibv_reg_buf_mr)
FAULTLINE_LATER_OBJECT(ibv_reg_mr_ex)
FAULTLINE_LATER_CALL(_ibv_query_comp_cntr_caps)
FAULTLINE_LATER_CALL(ibv_dealloc_dmah)
FAULTLINE_LATER_CALL(ibv_destroy_comp_cntr)
FAULTLINE_LATER_CALL(ibv_free_buf)
FAULTLINE_LATER_CALL(ibv_inc_comp_cntr)
FAULTLINE_LATER_CALL(ibv_inc_err_comp_cntr)
FAULTLINE_LATER_CALL(ibv_qp_attach_comp_cntr)
FAULTLINE_LATER_CALL(ibv_query_port_speed)
FAULTLINE_LATER_CALL(ibv_read_comp_cntr)
FAULTLINE_LATER_CALL(ibv_read_err_comp_cntr)
FAULTLINE_LATER_CALL(ibv_set_comp_cntr)
FAULTLINE_LATER_CALL(ibv_set_err_comp_cntr)
FAULTLINE_LATER_DESCRIPTOR(ibv_dm_export_dmabuf_fd)
FAULTLINE_LATER_DESCRIPTOR(ibv_export_buf_dmabuf_fd)
#undef FAULTLINE_LATER_OBJECT
#undef FAULTLINE_LATER_CALL
#undef FAULTLINE_LATER_DESCRIPTOR

}  // namespace faultline::abi
