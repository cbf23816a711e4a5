// SPDX-License-Identifier: BSD-3-Clause
// One program writes into the memory of another one by RDMA WRITE (C, libibverbs).
//   write [-p PORT] [-g GID_INDEX]            the server: offers memory, waits, and checks every byte
//   write [-p PORT] [-g GID_INDEX] ADDRESS    the client: writes to the server at this address
// The two exchange the parameters of their QPs over TCP, one line of text each. write.py has the same line.
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { kBytes = 1 << 20 };

// What the peer must know of a QP, and of the memory that it writes to.
struct end {
  uint32_t qpn, psn, rkey;
  uint64_t address;
  union ibv_gid gid;
};

static void check(int is_good, const char* what) {
  if (is_good) return;
  fprintf(stderr, "write: %s%s%s\n", what, errno != 0 ? ": " : "", errno != 0 ? strerror(errno) : "");
  exit(1);
}

// Returns a TCP connection: to `address`, or from the first caller if it is NULL.
static int meet(const char* address, const char* port) {
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
  check(getaddrinfo(address, port, &hints, &found) == 0, "getaddrinfo");
  const int one = 1;
  for (int attempt = 0;; ++attempt) {
    int fd = socket(found->ai_family, SOCK_STREAM, 0);
    check(fd >= 0, "socket");
    if (address == NULL) {
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
      check(bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0, "listen");
      const int caller = accept(fd, NULL, NULL);
      close(fd);
      fd = caller;
      check(fd >= 0, "accept");
    } else if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
      check(attempt < 100, "connect");
      close(fd);
      usleep(100 * 1000);  // The server may still start.
      continue;
    }
    freeaddrinfo(found);
    return fd;
  }
}

// The TCP connection; `in` reads from it.
struct peer {
  int socket;
  FILE* in;
};

static struct end exchange(const struct peer* peer, const struct end* mine) {
  char gid[INET6_ADDRSTRLEN];
  inet_ntop(AF_INET6, mine->gid.raw, gid, sizeof gid);
  dprintf(peer->socket, "%" PRIx32 " %" PRIx32 " %" PRIx32 " %" PRIx64 " %s\n", mine->qpn, mine->psn,
          mine->rkey, mine->address, gid);
  struct end theirs;
  check(fscanf(peer->in, "%" SCNx32 " %" SCNx32 " %" SCNx32 " %" SCNx64 " %45s", &theirs.qpn, &theirs.psn,
               &theirs.rkey, &theirs.address, gid) == 5,
        "the peer's line");
  check(inet_pton(AF_INET6, gid, theirs.gid.raw) == 1, "the peer's GID");
  return theirs;
}

// Takes the QP from RESET to RTS. Errors of ibv_modify_qp(3) are its result.
static void join(struct ibv_qp* qp, const struct end* mine, const struct end* theirs, int gid_index,
                 enum ibv_mtu mtu) {
  struct ibv_qp_attr init = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  errno = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  check(errno == 0, "INIT");
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = mtu,
      .dest_qp_num = theirs->qpn,
      .rq_psn = theirs->psn,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 12,
      // RoCE has no LIDs: the address is the GRH's.
      .ah_attr = {.is_global = 1,
                  .port_num = 1,
                  .grh = {.dgid = theirs->gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64}}};
  errno = ibv_modify_qp(qp, &rtr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  check(errno == 0, "RTR");
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                            .timeout = 14,
                            .retry_cnt = 7,
                            .rnr_retry = 7,
                            .sq_psn = mine->psn,
                            .max_rd_atomic = 1};
  errno = ibv_modify_qp(qp, &rts,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC);
  check(errno == 0, "RTS");
}

static void write_all(struct ibv_qp* qp, struct ibv_cq* cq, struct ibv_mr* mr, const struct end* to) {
  struct ibv_sge piece = {.addr = (uint64_t)(uintptr_t)mr->addr, .length = kBytes, .lkey = mr->lkey};
  struct ibv_send_wr request = {.sg_list = &piece,
                                .num_sge = 1,
                                .opcode = IBV_WR_RDMA_WRITE,
                                .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = {.remote_addr = to->address, .rkey = to->rkey}};
  struct ibv_send_wr* refused;
  errno = ibv_post_send(qp, &request, &refused);
  check(errno == 0, "ibv_post_send");
  struct ibv_wc completion;
  int count;
  while ((count = ibv_poll_cq(cq, 1, &completion)) == 0) {
  }
  check(count == 1, "ibv_poll_cq");
  if (completion.status != IBV_WC_SUCCESS) {
    fprintf(stderr, "write: %s\n", ibv_wc_status_str(completion.status));
    exit(1);
  }
}

int main(int argc, char** argv) {
  const char* port = "18515";
  int gid_index = 0;
  for (int option; (option = getopt(argc, argv, "p:g:")) != -1;) {
    if (option == 'p') port = optarg;
    if (option == 'g') gid_index = atoi(optarg);
    if (option == '?') return 2;
  }
  const char* const server = argv[optind];

  struct ibv_device** const devices = ibv_get_device_list(NULL);
  check(devices != NULL && devices[0] != NULL, "no RDMA device");
  struct ibv_context* const context = ibv_open_device(devices[0]);
  check(context != NULL, "ibv_open_device");
  ibv_free_device_list(devices);
  struct ibv_port_attr port_attr;
  check(ibv_query_port(context, 1, &port_attr) == 0, "ibv_query_port");

  struct ibv_pd* const pd = ibv_alloc_pd(context);
  struct ibv_cq* const cq = ibv_create_cq(context, 1, NULL, NULL, 0);
  uint8_t* const memory = calloc(1, kBytes);
  check(pd != NULL && cq != NULL && memory != NULL, "resources");
  struct ibv_mr* const mr = ibv_reg_mr(pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  check(mr != NULL, "ibv_reg_mr");
  struct ibv_qp_init_attr init = {.send_cq = cq,
                                  .recv_cq = cq,
                                  .qp_type = IBV_QPT_RC,
                                  .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1}};
  struct ibv_qp* const qp = ibv_create_qp(pd, &init);
  check(qp != NULL, "ibv_create_qp");

  struct end mine = {.qpn = qp->qp_num, .rkey = mr->rkey, .address = (uint64_t)(uintptr_t)memory};
  check(getrandom(&mine.psn, sizeof mine.psn, 0) == sizeof mine.psn, "getrandom");
  mine.psn &= 0xffffff;
  check(ibv_query_gid(context, 1, gid_index, &mine.gid) == 0, "ibv_query_gid");

  struct peer peer = {.socket = meet(server, port)};
  peer.in = fdopen(peer.socket, "r");
  check(peer.in != NULL, "fdopen");
  const struct end theirs = exchange(&peer, &mine);
  join(qp, &mine, &theirs, gid_index, port_attr.active_mtu);
  // Neither end uses the connection before both are ready.
  dprintf(peer.socket, "ready\n");
  char word[16];
  check(fscanf(peer.in, "%15s", word) == 1, "the peer is not ready");

  int wrong = 0;
  if (server != NULL) {
    for (int i = 0; i < kBytes; ++i) memory[i] = (uint8_t)(i * 7 + i / 256);
    write_all(qp, cq, mr, &theirs);
    printf("wrote %d bytes\n", kBytes);
    dprintf(peer.socket, "written\n");
  } else {
    check(fscanf(peer.in, "%15s", word) == 1, "the peer ended");
    for (int i = 0; i < kBytes; ++i) wrong += memory[i] != (uint8_t)(i * 7 + i / 256);
    printf("%d bytes arrived, %d are wrong\n", kBytes, wrong);
  }
  fclose(peer.in);
  ibv_destroy_qp(qp);
  ibv_dereg_mr(mr);
  free(memory);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return wrong != 0;
}
