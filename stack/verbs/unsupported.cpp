// SPDX-License-Identifier: BSD-3-Clause
// Public functions of the header for what this stack does not offer: each says EOPNOTSUPP, as a provider
// without it does.
#include "stack/verbs/objects.hpp"

namespace faultline::verbs {

// --- shared receive queues ---
FAULTLINE_VERB ibv_srq* ibv_create_srq(ibv_pd* /*pd*/, ibv_srq_init_attr* /*init*/) {
  return fail(EOPNOTSUPP);
}
FAULTLINE_VERB int ibv_modify_srq(ibv_srq* /*srq*/, ibv_srq_attr* /*attributes*/, int /*mask*/) {
  return EOPNOTSUPP;
}
FAULTLINE_VERB int ibv_query_srq(ibv_srq* /*srq*/, ibv_srq_attr* /*attributes*/) {
  return EOPNOTSUPP;
}
FAULTLINE_VERB int ibv_destroy_srq(ibv_srq* /*srq*/) {
  return EOPNOTSUPP;
}

// --- completion channels ---
FAULTLINE_VERB ibv_comp_channel* ibv_create_comp_channel(ibv_context* /*context*/) {
  return fail(EOPNOTSUPP);
}
FAULTLINE_VERB int ibv_destroy_comp_channel(ibv_comp_channel* /*channel*/) {
  return EOPNOTSUPP;
}
FAULTLINE_VERB int ibv_get_cq_event(ibv_comp_channel* /*channel*/, ibv_cq** /*cq*/, void** /*cq_context*/) {
  errno = EOPNOTSUPP;
  return -1;
}
FAULTLINE_VERB void ibv_ack_cq_events(ibv_cq* /*cq*/, unsigned int /*count*/) {}

FAULTLINE_VERB int ibv_resize_cq(ibv_cq* /*cq*/, int /*entries*/) {
  return EOPNOTSUPP;
}

// --- multicast ---
FAULTLINE_VERB int ibv_attach_mcast(ibv_qp* /*qp*/, const ibv_gid* /*gid*/, uint16_t /*lid*/) {
  return EOPNOTSUPP;
}
FAULTLINE_VERB int ibv_detach_mcast(ibv_qp* /*qp*/, const ibv_gid* /*gid*/, uint16_t /*lid*/) {
  return EOPNOTSUPP;
}

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

namespace {

int bind_mw(ibv_qp* /*qp*/, ibv_mw* /*mw*/, ibv_mw_bind* /*bind*/) {
  return EOPNOTSUPP;
}
int dealloc_mw(ibv_mw* /*mw*/) {
  return EOPNOTSUPP;
}
int post_srq_recv(ibv_srq* /*srq*/, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  *bad_wr = wr;
  return EOPNOTSUPP;
}
int close_xrcd(ibv_xrcd* /*xrcd*/) {
  return EOPNOTSUPP;
}

}  // namespace

void set_unsupported_ops(verbs_context& context) {
  context.context.ops.bind_mw = bind_mw;
  context.context.ops.dealloc_mw = dealloc_mw;
  context.context.ops.post_srq_recv = post_srq_recv;
  context.close_xrcd = close_xrcd;
}

}  // namespace faultline::verbs
