// SPDX-License-Identifier: BSD-3-Clause
// A verbs program of ordinary C, for sanitizers and debuggers: two QPs of one device joined to each other,
// one thread that sends and one that receives, in classic and in on-demand memory, every byte compared.
//   small_verbs clean      does no more than that
//   small_verbs overflow   reads one byte behind a heap block at its end: AddressSanitizer and valgrind
//   report it small_verbs race       two threads count in one variable without a lock: ThreadSanitizer
//   reports it
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { kMessages = 200, kMessageBytes = 3000, kSlots = 8, kBytes = kSlots * 4096 };

static struct ibv_qp* qps[2];
static struct ibv_cq* cqs[2];
static struct ibv_mr* mrs[2];
static uint8_t* buffers[2];
static volatile int unlocked_count;

static void check(int is_good, const char* what) {
  if (is_good) return;
  perror(what);
  exit(1);
}

static void join(struct ibv_qp* qp, uint32_t peer_qpn, union ibv_gid gid, enum ibv_mtu mtu) {
  struct ibv_qp_attr init = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  check(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
        "INIT");
  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = mtu,
                            .dest_qp_num = peer_qpn,
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = 12,
                            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 1}}};
  check(ibv_modify_qp(qp, &rtr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
        "RTR");
  // The longest timeout that is not "none", for a machine that is slow under valgrind.
  struct ibv_qp_attr rts = {
      .qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  check(ibv_modify_qp(qp, &rts,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC) == 0,
        "RTS");
}

static void await(struct ibv_cq* cq) {
  struct ibv_wc wc;
  int n = 0;
  while (n == 0) n = ibv_poll_cq(cq, 1, &wc);
  check(n == 1, "ibv_poll_cq");
  if (wc.status != IBV_WC_SUCCESS) {
    fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc.status));
    exit(1);
  }
}

static uint8_t* slot_of(int side, int message) {
  return buffers[side] + (message % kSlots) * 4096;
}

static void post_receive(int message) {
  struct ibv_sge piece = {(uintptr_t)slot_of(1, message), kMessageBytes, mrs[1]->lkey};
  struct ibv_recv_wr request = {.wr_id = (uint64_t)message, .sg_list = &piece, .num_sge = 1};
  struct ibv_recv_wr* bad;
  check(ibv_post_recv(qps[1], &request, &bad) == 0, "ibv_post_recv");
}

static void* receive_all(void* argument) {
  (void)argument;
  for (int message = 0; message < kMessages; ++message) {
    await(cqs[1]);
    const uint8_t* bytes = slot_of(1, message);
    for (int i = 0; i < kMessageBytes; ++i)
      if (bytes[i] != (uint8_t)(message + i)) {
        fprintf(stderr, "message %d, byte %d: %d\n", message, i, bytes[i]);
        exit(1);
      }
    if (message + kSlots < kMessages) post_receive(message + kSlots);
  }
  return NULL;
}

static void* count_unlocked(void* argument) {
  (void)argument;
  for (int i = 0; i < 100000; ++i) unlocked_count = unlocked_count + 1;
  return NULL;
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "clean";
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  check(list != NULL && count == 1, "ibv_get_device_list");
  struct ibv_context* context = ibv_open_device(list[0]);
  check(context != NULL, "ibv_open_device");
  ibv_free_device_list(list);
  union ibv_gid gid;
  struct ibv_port_attr port;
  check(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
  check(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
  struct ibv_pd* pd = ibv_alloc_pd(context);
  check(pd != NULL, "ibv_alloc_pd");
  for (int side = 0; side < 2; ++side) {
    buffers[side] = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(buffers[side] != MAP_FAILED, "mmap");
    mrs[side] = ibv_reg_mr(pd, buffers[side], kBytes,
                           IBV_ACCESS_LOCAL_WRITE | (side == 1 ? IBV_ACCESS_ON_DEMAND : 0));
    check(mrs[side] != NULL, "ibv_reg_mr");
    cqs[side] = ibv_create_cq(context, 64, NULL, NULL, 0);
    check(cqs[side] != NULL, "ibv_create_cq");
    struct ibv_qp_init_attr attributes = {
        .send_cq = cqs[side],
        .recv_cq = cqs[side],
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
    qps[side] = ibv_create_qp(pd, &attributes);
    check(qps[side] != NULL, "ibv_create_qp");
  }
  for (int side = 0; side < 2; ++side) join(qps[side], qps[1 - side]->qp_num, gid, port.active_mtu);
  for (int message = 0; message < kSlots; ++message) post_receive(message);

  pthread_t receiver;
  check(pthread_create(&receiver, NULL, receive_all, NULL) == 0, "pthread_create");
  for (int message = 0; message < kMessages; ++message) {
    uint8_t* bytes = slot_of(0, message);
    for (int i = 0; i < kMessageBytes; ++i) bytes[i] = (uint8_t)(message + i);
    struct ibv_sge piece = {(uintptr_t)bytes, kMessageBytes, mrs[0]->lkey};
    struct ibv_send_wr request = {
        .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr* bad;
    check(ibv_post_send(qps[0], &request, &bad) == 0, "ibv_post_send");
    await(cqs[0]);
  }
  pthread_join(receiver, NULL);

  if (strcmp(mode, "race") == 0) {
    pthread_t counters[2];
    for (int i = 0; i < 2; ++i)
      check(pthread_create(&counters[i], NULL, count_unlocked, NULL) == 0, "pthread_create");
    for (int i = 0; i < 2; ++i) pthread_join(counters[i], NULL);
  }
  if (strcmp(mode, "overflow") == 0) {
    volatile uint8_t* block = malloc(24);
    check(block != NULL, "malloc");
    memset((void*)block, 1, 24);
    volatile size_t index = 24;
    if (block[index] == 77) puts("a byte that is not the program's own");
    free((void*)block);
  }
  for (int side = 0; side < 2; ++side) {
    check(ibv_destroy_qp(qps[side]) == 0, "ibv_destroy_qp");
    check(ibv_destroy_cq(cqs[side]) == 0, "ibv_destroy_cq");
    check(ibv_dereg_mr(mrs[side]) == 0, "ibv_dereg_mr");
    munmap(buffers[side], kBytes);
  }
  check(ibv_dealloc_pd(pd) == 0, "ibv_dealloc_pd");
  check(ibv_close_device(context) == 0, "ibv_close_device");
  puts("every byte is right");
  return 0;
}
