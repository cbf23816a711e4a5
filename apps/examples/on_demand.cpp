// SPDX-License-Identifier: BSD-3-Clause
// On-demand memory and Faultline's counters (C++, libibverbs and libfaultline): registers 4 GiB without
// touching a page, writes to a few places of it by RDMA, and prints what became resident.
//   FAULTLINE_WIRE=w0 on_demand
// The device writes to itself, by two QPs that are joined.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <faultline/faultline.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

namespace {

constexpr size_t kRegionBytes = size_t{4} << 30;
constexpr size_t kWriteBytes = 4096;
constexpr int kWrites = 100;

void check(bool is_good, const char* what) {
  if (!is_good) throw std::system_error(errno, std::generic_category(), what);
}

/// Of calls that return their errno.
void check_errno(int error, const char* what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

uint64_t counter(ibv_context* context, std::string_view name) {
  std::vector<faultline_counter> counters(static_cast<size_t>(faultline_query_counters(context, nullptr, 0)));
  faultline_query_counters(context, counters.data(), counters.size());
  for (const faultline_counter& one : counters)
    if (one.name == name) return one.value;
  return 0;
}

ibv_qp* make_qp(ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  ibv_qp* const qp = ibv_create_qp(pd, &attr);
  check(qp != nullptr, "ibv_create_qp");
  return qp;
}

/// Takes `qp` to RTS, with `peer` of the same device as its peer. Both begin with PSN 0.
void join(ibv_qp* qp, const ibv_qp* peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  check_errno(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              "INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_4096;
  attr.dest_qp_num = peer->qp_num;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.hop_limit = 1;
  check(ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid) == 0, "ibv_query_gid");
  check_errno(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              "RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  check_errno(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
              "RTS");
}

void write(ibv_qp* qp, const ibv_mr* from, const ibv_mr* to, size_t offset_bytes) {
  ibv_sge piece{reinterpret_cast<uintptr_t>(from->addr), kWriteBytes, from->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(to->addr) + offset_bytes;
  request.wr.rdma.rkey = to->rkey;
  ibv_send_wr* refused = nullptr;
  check_errno(ibv_post_send(qp, &request, &refused), "ibv_post_send");
  ibv_wc completion{};
  int count = 0;
  while (count == 0) count = ibv_poll_cq(qp->send_cq, 1, &completion);
  if (count < 0 || completion.status != IBV_WC_SUCCESS)
    throw std::runtime_error(ibv_wc_status_str(completion.status));
}

int run() {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  if (devices == nullptr || count == 0)
    throw std::runtime_error(std::string("no RDMA device: ") + faultline_last_error());
  ibv_context* const context = ibv_open_device(devices[0]);
  if (context == nullptr) throw std::runtime_error(std::string("ibv_open_device: ") + faultline_last_error());
  ibv_free_device_list(devices);
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_cq* const cq = ibv_create_cq(context, 2, nullptr, nullptr, 0);
  check(pd != nullptr && cq != nullptr, "resources");

  // Address space without memory: MAP_NORESERVE, and no page is touched.
  void* const region =
      mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(region != MAP_FAILED, "mmap");
  ibv_mr* const target = ibv_reg_mr(pd, region, kRegionBytes,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ON_DEMAND);
  check(target != nullptr, "ibv_reg_mr");
  std::vector<uint8_t> pattern(kWriteBytes, 0x5a);
  ibv_mr* const source = ibv_reg_mr(pd, pattern.data(), pattern.size(), IBV_ACCESS_LOCAL_WRITE);
  check(source != nullptr, "ibv_reg_mr");

  ibv_qp* const sender = make_qp(pd, cq);
  ibv_qp* const receiver = make_qp(pd, cq);
  join(sender, receiver);
  join(receiver, sender);
  const size_t step_bytes = kRegionBytes / kWrites / kWriteBytes * kWriteBytes;
  for (int i = 0; i < kWrites; ++i) write(sender, source, target, static_cast<size_t>(i) * step_bytes);

  int wrong = 0;
  for (int i = 0; i < kWrites; ++i)
    wrong += std::memcmp(static_cast<uint8_t*>(region) + static_cast<size_t>(i) * step_bytes, pattern.data(),
                         kWriteBytes) != 0;
  std::printf("%d writes into %zu MiB, %d are wrong\n", kWrites, kRegionBytes >> 20, wrong);
  for (const char* name : {"odp.num_page_faults", "odp.num_page_fault_pages", "odp.num_odp_mr_pages"})
    std::printf("%-26s %llu\n", name, static_cast<unsigned long long>(counter(context, name)));

  ibv_destroy_qp(sender);
  ibv_destroy_qp(receiver);
  ibv_dereg_mr(source);
  ibv_dereg_mr(target);
  munmap(region, kRegionBytes);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "on_demand: %s\n", error.what());
    return 1;
  }
}
