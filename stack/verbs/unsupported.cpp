// SPDX-License-Identifier: BSD-3-Clause
// Public functions of the header for what this stack does not offer: each says EOPNOTSUPP, as a provider
// without it does.
#include "stack/verbs/objects.hpp"

namespace faultline::verbs {

// --- objects of other processes and other memory ---
FAULTLINE_VERB ibv_context* ibv_import_device(int /*cmd_fd*/) {
  return fail(EOPNOTSUPP);
}
FAULTLINE_VERB ibv_pd* ibv_import_pd(ibv_context* /*context*/, uint32_t /*handle*/) {
  return fail(EOPNOTSUPP);
}
FAULTLINE_VERB void ibv_unimport_pd(ibv_pd* /*pd*/) {}
FAULTLINE_VERB ibv_mr* ibv_import_mr(ibv_pd* /*pd*/, uint32_t /*handle*/) {
  return fail(EOPNOTSUPP);
}
FAULTLINE_VERB void ibv_unimport_mr(ibv_mr* /*mr*/) {}
FAULTLINE_VERB ibv_dm* ibv_import_dm(ibv_context* /*context*/, uint32_t /*handle*/) {
  return fail(EOPNOTSUPP);
}
FAULTLINE_VERB void ibv_unimport_dm(ibv_dm* /*dm*/) {}
FAULTLINE_VERB ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* /*pd*/, uint64_t /*offset*/, size_t /*length*/,
                                         uint64_t /*iova*/, int /*fd*/, int /*access*/) {
  return fail(EOPNOTSUPP);
}

// --- enhanced connection establishment ---
FAULTLINE_VERB int ibv_set_ece(ibv_qp* /*qp*/, ibv_ece* /*ece*/) {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}
FAULTLINE_VERB int ibv_query_ece(ibv_qp* /*qp*/, ibv_ece* ece) {
  *ece = {};
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

// --- fork: the engine's memory is never handed to a device, so a child's copy-on-write hurts nobody ---
FAULTLINE_VERB int ibv_fork_init() {
  return 0;
}
FAULTLINE_VERB ibv_fork_status ibv_is_fork_initialized() {
  return IBV_FORK_UNNEEDED;
}

}  // namespace faultline::verbs
