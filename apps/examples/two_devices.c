// SPDX-License-Identifier: BSD-3-Clause
// One process with two devices: a datagram from each device to the other one (C, libibverbs, UD).
//   faultline-run --config two_devices.toml ./two_devices
// With one device, that device sends to itself.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A receiver finds a GRH, or room for one, before each datagram.
enum { kGrhBytes = 40, kTextBytes = 64, kQKey = 0x1234 };

struct side {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_mr* mr;
  struct ibv_qp* qp;
  union ibv_gid gid;
  char text[kTextBytes];                  // sent
  char received[kGrhBytes + kTextBytes];  // the GRH, and the text of the other side
};

static void check(int is_good, const char* what) {
  if (is_good) return;
  perror(what);
  exit(1);
}

static void open_side(struct side* side, struct ibv_device* device) {
  side->context = ibv_open_device(device);
  check(side->context != NULL, "ibv_open_device");
  side->pd = ibv_alloc_pd(side->context);
  side->cq = ibv_create_cq(side->context, 2, NULL, NULL, 0);
  check(side->pd != NULL && side->cq != NULL, "resources");
  side->mr = ibv_reg_mr(side->pd, side, sizeof *side, IBV_ACCESS_LOCAL_WRITE);
  check(side->mr != NULL, "ibv_reg_mr");
  struct ibv_qp_init_attr init = {
      .send_cq = side->cq,
      .recv_cq = side->cq,
      .qp_type = IBV_QPT_UD,
      .sq_sig_all = 1,
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
  side->qp = ibv_create_qp(side->pd, &init);
  check(side->qp != NULL, "ibv_create_qp");
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = kQKey};
  errno = ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  check(errno == 0, "INIT");
  attr.qp_state = IBV_QPS_RTR;
  errno = ibv_modify_qp(side->qp, &attr, IBV_QP_STATE);
  check(errno == 0, "RTR");
  attr.qp_state = IBV_QPS_RTS;
  errno = ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
  check(errno == 0, "RTS");
  check(ibv_query_gid(side->context, 1, 0, &side->gid) == 0, "ibv_query_gid");

  struct ibv_sge room = {
      .addr = (uint64_t)(uintptr_t)side->received, .length = sizeof side->received, .lkey = side->mr->lkey};
  struct ibv_recv_wr receive = {.sg_list = &room, .num_sge = 1}, *refused;
  errno = ibv_post_recv(side->qp, &receive, &refused);
  check(errno == 0, "ibv_post_recv");
}

static void send_text(struct side* from, const struct side* to) {
  struct ibv_ah_attr address = {
      .is_global = 1, .port_num = 1, .grh = {.dgid = to->gid, .sgid_index = 0, .hop_limit = 64}};
  struct ibv_ah* const ah = ibv_create_ah(from->pd, &address);
  check(ah != NULL, "ibv_create_ah");
  struct ibv_sge piece = {
      .addr = (uint64_t)(uintptr_t)from->text, .length = sizeof from->text, .lkey = from->mr->lkey};
  struct ibv_send_wr request = {.sg_list = &piece,
                                .num_sge = 1,
                                .opcode = IBV_WR_SEND,
                                .wr.ud = {.ah = ah, .remote_qpn = to->qp->qp_num, .remote_qkey = kQKey}};
  struct ibv_send_wr* refused;
  errno = ibv_post_send(from->qp, &request, &refused);
  check(errno == 0, "ibv_post_send");
}

// Waits for the completions of the datagram that the side sent and of the one that it receives.
static void wait_for_both(struct side* side) {
  for (int completed = 0; completed < 2;) {
    struct ibv_wc completion;
    const int count = ibv_poll_cq(side->cq, 1, &completion);
    check(count >= 0, "ibv_poll_cq");
    if (count == 0) continue;
    check(completion.status == IBV_WC_SUCCESS, ibv_wc_status_str(completion.status));
    ++completed;
  }
}

int main(void) {
  int count;
  struct ibv_device** const devices = ibv_get_device_list(&count);
  check(devices != NULL && count > 0, "no RDMA device");
  static struct side sides[2];
  for (int i = 0; i < 2; ++i) {
    struct ibv_device* const device = devices[i < count ? i : 0];
    snprintf(sides[i].text, sizeof sides[i].text, "a datagram from side %d, device %s", i,
             ibv_get_device_name(device));
    open_side(&sides[i], device);
  }
  ibv_free_device_list(devices);
  send_text(&sides[0], &sides[1]);
  send_text(&sides[1], &sides[0]);
  int wrong = 0;
  for (int i = 0; i < 2; ++i) {
    wait_for_both(&sides[i]);
    const char* const text = sides[i].received + kGrhBytes;
    printf("side %d received: %s\n", i, text);
    wrong += strcmp(text, sides[1 - i].text) != 0;
  }
  // The end of the process releases the devices with all that belongs to them.
  return wrong != 0;
}
