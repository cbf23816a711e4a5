// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into a language runtime beside the library: a thread that moves RDMA data while the runtime lives
// by its own signals. It writes from one QP to another of a loop-back device, into on-demand memory that is
// dropped before each write and by another thread during each, and compares every byte. Every 64th write is
// to a file that a bare system call has truncated: its copy must fault by SIGBUS, be caught, and end in an
// access error.
//   RUNTIMES_REPORT  a file of 32 bytes: three counters of 8 bytes, then the mover's state
//   RUNTIMES_ORDER   "before": the device is opened before the runtime sets its handlers; "after": then
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>
#include <thread>

#include <faultline/faultline.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr size_t kBytes = 64 << 10;
constexpr int kRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND;

enum State : uint64_t { starting = 0, moving = 1, failed = 2 };
struct Report {
  std::atomic<uint64_t> writes;
  std::atomic<uint64_t> refused;      ///< writes to the truncated file
  std::atomic<uint64_t> copy_faults;  ///< of them, caught in the copy
  std::atomic<uint64_t> state;
};
Report* report = nullptr;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "FAILED: the mover: %s (%s)\n", what, std::strerror(errno));
  report->state = failed;
  _exit(1);
}
template <typename Pointer>
Pointer* need(Pointer* pointer, const char* what) {
  if (pointer == nullptr) fail(what);
  return pointer;
}

uint8_t* map(int file, int flags) {
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory == MAP_FAILED) fail("mmap");
  return static_cast<uint8_t*>(memory);
}

class Mover {
 public:
  void open() {
    ibv_device** const list = need(ibv_get_device_list(nullptr), "ibv_get_device_list");
    context_ = need(ibv_open_device(need(*list, "no device")), "ibv_open_device");
    ibv_free_device_list(list);
    pd_ = need(ibv_alloc_pd(context_), "ibv_alloc_pd");
    cq_ = need(ibv_create_cq(context_, 16, nullptr, nullptr, 0), "ibv_create_cq");
    if (ibv_query_gid(context_, 1, 0, &gid_) != 0) fail("ibv_query_gid");
    source_mr_ = need(ibv_reg_mr(pd_, source_, kBytes, kRights), "ibv_reg_mr");
    target_mr_ = need(ibv_reg_mr(pd_, target_, kBytes, kRights), "ibv_reg_mr");
    file_mr_ = need(ibv_reg_mr(pd_, in_file_, kBytes, kRights), "ibv_reg_mr");
    connect();
  }

  [[noreturn]] void move() {
    report->state = moving;
    std::thread([this] {
      for (;;) {
        madvise(source_ + kBytes / 2, kBytes / 2, MADV_DONTNEED);
        rest();
      }
    }).detach();
    for (uint64_t round = 1;; ++round) {
      // The second half of the source is zeros, whether it has been dropped or not.
      std::memset(source_, static_cast<int>(round), kBytes / 2);
      madvise(target_, kBytes, MADV_DONTNEED);
      if (write_to(target_, target_mr_) != IBV_WC_SUCCESS) fail("a write to memory that is there");
      if (std::memcmp(target_, source_, kBytes / 2) != 0) fail("the data");
      const auto is_zero = [](uint8_t byte) { return byte == 0; };
      if (!std::all_of(target_ + kBytes / 2, target_ + kBytes, is_zero)) fail("the zeros");
      report->writes.fetch_add(1);
      if (round % 64 == 0) write_to_truncated();
      rest();
    }
  }

 private:
  /// The runtime needs a CPU, too.
  static void rest() {
    const timespec pause{.tv_sec = 0, .tv_nsec = 200'000};
    nanosleep(&pause, nullptr);
  }

  ibv_qp* create_qp() {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq_;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {4, 4, 1, 1, 0};
    return need(ibv_create_qp(pd_, &attributes), "ibv_create_qp");
  }

  void connect_one(ibv_qp* qp, uint32_t peer) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (ibv_modify_qp(qp, &attributes,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
      fail("INIT");
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer;
    attributes.max_dest_rd_atomic = 1;
    attributes.min_rnr_timer = 1;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.grh.dgid = gid_;
    attributes.ah_attr.grh.hop_limit = 64;
    if (ibv_modify_qp(qp, &attributes,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
      fail("RTR");
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 18;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 7;
    attributes.max_rd_atomic = 1;
    if (ibv_modify_qp(qp, &attributes,
                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_MAX_QP_RD_ATOMIC) != 0)
      fail("RTS");
  }
  void connect() {
    if (from_ != nullptr && (ibv_destroy_qp(from_) != 0 || ibv_destroy_qp(to_) != 0)) fail("ibv_destroy_qp");
    from_ = create_qp();
    to_ = create_qp();
    connect_one(from_, to_->qp_num);
    connect_one(to_, from_->qp_num);
  }

  ibv_wc_status write_to(const uint8_t* memory, const ibv_mr* mr) {
    ibv_sge piece{reinterpret_cast<uint64_t>(source_), kBytes, source_mr_->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(memory);
    request.wr.rdma.rkey = mr->rkey;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(from_, &request, &bad) != 0) fail("ibv_post_send");
    ibv_wc completion{};
    int polled = 0;
    while ((polled = ibv_poll_cq(cq_, 1, &completion)) == 0) {
    }
    if (polled < 0) fail("ibv_poll_cq");
    return completion.status;
  }

  void write_to_truncated() {
    const uint64_t before = copy_faults();
    if (write_to(in_file_, file_mr_) != IBV_WC_SUCCESS) fail("a write to the file");
    if (syscall(SYS_ftruncate, file_, 0) != 0) fail("ftruncate");
    if (write_to(in_file_, file_mr_) != IBV_WC_REM_ACCESS_ERR)
      fail("a write to the truncated file succeeded");
    report->refused.fetch_add(1);
    report->copy_faults.fetch_add(copy_faults() - before);
    if (syscall(SYS_ftruncate, file_, kBytes) != 0) fail("ftruncate");
    connect();
  }
  [[nodiscard]] uint64_t copy_faults() const {
    static std::array<faultline_counter, 1024> counters;
    const int count = faultline_query_counters(context_, counters.data(), counters.size());
    for (int i = 0; i < std::min(count, static_cast<int>(counters.size())); ++i)
      if (std::string_view(counters[static_cast<size_t>(i)].name) == "odp.copy_faults_caught")
        return counters[static_cast<size_t>(i)].value;
    fail("no counter of caught faults");
  }

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* from_ = nullptr;
  ibv_qp* to_ = nullptr;
  ibv_gid gid_{};
  const int file_ = [] {
    const int file = memfd_create("runtimes", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, kBytes) != 0) fail("memfd_create");
    return file;
  }();
  uint8_t* const source_ = map(-1, MAP_PRIVATE | MAP_ANONYMOUS);
  uint8_t* const target_ = map(-1, MAP_PRIVATE | MAP_ANONYMOUS);
  uint8_t* const in_file_ = map(file_, MAP_SHARED);
  ibv_mr* source_mr_ = nullptr;
  ibv_mr* target_mr_ = nullptr;
  ibv_mr* file_mr_ = nullptr;
};

/// Until the runtime has set its own SIGSEGV handler. By the system call: the library is not asked.
void await_runtime() {
  struct {
    uintptr_t handler;
    uint64_t flags;
    void* restorer;
    uint64_t mask;
  } action{};
  while (syscall(SYS_rt_sigaction, SIGSEGV, nullptr, &action, sizeof action.mask) == 0 &&
         action.handler == 0) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

__attribute__((constructor)) void start() {
  const char* const path = std::getenv("RUNTIMES_REPORT");
  const char* const order = std::getenv("RUNTIMES_ORDER");
  if (path == nullptr || order == nullptr) return;
  // A process that the runtime starts is none of ours.
  unsetenv("RUNTIMES_ORDER");
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void* const memory = mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || memory == MAP_FAILED) _exit(1);
  report = static_cast<Report*>(memory);
  auto* const mover = new Mover;
  const bool before = std::string_view(order) == "before";
  if (before) mover->open();
  std::thread([mover, before] {
    if (!before) {
      await_runtime();
      mover->open();
    }
    mover->move();
  }).detach();
}

}  // namespace
