// SPDX-License-Identifier: BSD-3-Clause
// The whole path of a message, from ibv_post_send to ibv_poll_cq: two devices of one process joined by
// net_ring, whose turns one thread drives. What a message costs here is both sides' work and no waiting; run
// under callgrind it is_signaled where the instructions go (docs/performance.md). `cores_write` does it on
// several cores at once: each has two devices and a wire of its own, and whatever the process has in common
// they share.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <faultline/faultline.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <sys/mman.h>

namespace {

constexpr uint32_t kDepth = 128;
constexpr uint32_t kChain = 16;
constexpr int kPollBatch = 32;
constexpr ibv_qp_cap kCap{kDepth, 4 * kDepth, 1, 1, 0};
constexpr uint32_t kQkey = 0x11111111;
// ibv_post_recv(3): the first 40 bytes of a datagram's receive are for the GRH.
constexpr uint32_t kGrhBytes = 40;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "ring_bench: %s: %s\n", what, faultline_last_error());
  std::_Exit(1);
}

/// One device, its QPs and its memory.
struct Side {
  Side(int number, uint32_t qp_count, size_t bytes, bool on_demand, const ibv_qp_cap& cap = kCap,
       int completions = 65'536, ibv_qp_type type = IBV_QPT_RC)
      : buffer_bytes(bytes) {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    if (list == nullptr || count <= number) fail("ibv_get_device_list");
    context = ibv_open_device(list[number]);
    ibv_free_device_list(list);
    if (context == nullptr) fail("ibv_open_device");
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, completions, nullptr, nullptr, 0);
    buffer = static_cast<uint8_t*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                            (on_demand ? static_cast<unsigned>(IBV_ACCESS_ON_DEMAND) : 0U);
    mr = ibv_reg_mr(pd, buffer, bytes, access);
    if (cq == nullptr || buffer == MAP_FAILED || mr == nullptr || ibv_query_gid(context, 1, 0, &gid) != 0)
      fail("the side's objects");
    for (uint32_t i = 0; i < qp_count; ++i) {
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = cq;
      init.qp_type = type;
      init.cap = cap;
      qps.push_back(ibv_create_qp(pd, &init));
      if (qps.back() == nullptr) fail("ibv_create_qp");
    }
  }
  ~Side() {
    for (ibv_qp* qp : qps) ibv_destroy_qp(qp);
    if (handle != nullptr) ibv_destroy_ah(handle);
    ibv_dereg_mr(mr);
    munmap(buffer, buffer_bytes);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void connect(const Side& to) const {
    for (size_t i = 0; i < qps.size(); ++i) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_INIT;
      attr.port_num = 1;
      attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
      int error =
          ibv_modify_qp(qps[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      attr.qp_state = IBV_QPS_RTR;
      attr.path_mtu = IBV_MTU_4096;
      attr.dest_qp_num = to.qps[i]->qp_num;
      attr.max_dest_rd_atomic = kDepth;
      attr.min_rnr_timer = 1;
      attr.ah_attr.is_global = 1;
      attr.ah_attr.port_num = 1;
      attr.ah_attr.grh.dgid = to.gid;
      attr.ah_attr.grh.hop_limit = 64;
      if (error == 0)
        error = ibv_modify_qp(qps[i], &attr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      attr.qp_state = IBV_QPS_RTS;
      attr.timeout = 14;
      attr.retry_cnt = attr.rnr_retry = 7;
      attr.max_rd_atomic = kDepth;
      if (error == 0)
        error = ibv_modify_qp(qps[i], &attr,
                              IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
      if (error != 0) fail("ibv_modify_qp");
    }
  }

  /// The same for QPs of datagrams.
  void address(const Side& to) {
    for (ibv_qp* qp : qps) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_INIT;
      attr.port_num = 1;
      attr.qkey = kQkey;
      int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
      attr.qp_state = IBV_QPS_RTR;
      if (error == 0) error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
      attr.qp_state = IBV_QPS_RTS;
      if (error == 0) error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
      if (error != 0) fail("ibv_modify_qp");
    }
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = to.gid;
    attr.grh.hop_limit = 64;
    handle = ibv_create_ah(pd, &attr);
    if (handle == nullptr) fail("ibv_create_ah");
  }

  const size_t buffer_bytes;
  ibv_ah* handle = nullptr;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_gid gid{};
  uint8_t* buffer = nullptr;
  std::vector<ibv_qp*> qps;
};

/// Messages of one kind and size, kDepth of them under way in all, a chain of one QP after the other's.
class Stream {
 public:
  /// The messages are `stride_bytes` apart in memory.
  Stream(Side& from, Side& to, ibv_wr_opcode opcode, uint32_t bytes, uint32_t stride_bytes)
      : from_(from), to_(to), stride_bytes_(stride_bytes) {
    slots_ = static_cast<uint32_t>(from.buffer_bytes / stride_bytes);
    for (uint32_t i = 0; i < kChain; ++i) {
      pieces_[i] = {reinterpret_cast<uint64_t>(from.buffer), bytes, from.mr->lkey};
      chain_[i].next = i + 1 == kChain ? nullptr : &chain_[i + 1];
      chain_[i].sg_list = &pieces_[i];
      chain_[i].num_sge = 1;
      chain_[i].opcode = opcode;
      chain_[i].send_flags = i + 1 == kChain ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0U;
      if (opcode != IBV_WR_SEND) chain_[i].wr.rdma = {reinterpret_cast<uint64_t>(to.buffer), to.mr->rkey};
      if (is_datagrams()) chain_[i].wr.ud = {from.handle, to.qps.front()->qp_num, kQkey};
      landing_[i] = {reinterpret_cast<uint64_t>(to.buffer), bytes + (is_datagrams() ? kGrhBytes : 0),
                     to.mr->lkey};
      receives_[i] = {.wr_id = 0,
                      .next = i + 1 == kChain ? nullptr : &receives_[i + 1],
                      .sg_list = &landing_[i],
                      .num_sge = 1};
    }
    takes_receives_ = opcode == IBV_WR_SEND;
    if (!takes_receives_) return;
    for (ibv_qp* qp : to.qps)
      for (uint32_t i = 0; i < 2 * kDepth; i += kChain) post_receives(qp);
  }

  /// kDepth messages from post to completion.
  void run_batch() {
    uint32_t left = kDepth / kChain;
    for (uint32_t i = 0; i < left; ++i) post_chain();
    // Without acknowledgements only the receives show that the messages have arrived.
    uint32_t to_arrive = is_datagrams() ? kDepth : 0;
    while (left != 0 || to_arrive != 0) {
      left -= reap(from_);
      if (!takes_receives_) {
        faultline_progress(to_.context);
        continue;
      }
      const uint32_t arrived = reap(to_);
      received_ += arrived;
      to_arrive -= std::min(to_arrive, arrived);
      for (; received_ >= kChain; received_ -= kChain) {
        post_receives(to_.qps[next_receiver_]);
        next_receiver_ = next_receiver_ + 1 == to_.qps.size() ? 0 : next_receiver_ + 1;
      }
    }
  }

 private:
  [[nodiscard]] bool is_datagrams() const { return from_.handle != nullptr; }
  void post_chain() {
    for (uint32_t i = 0; i < kChain; ++i) {
      const uint64_t offset = uint64_t{next_slot_} * stride_bytes_;
      next_slot_ = next_slot_ + 1 == slots_ ? 0 : next_slot_ + 1;
      pieces_[i].addr = reinterpret_cast<uint64_t>(from_.buffer) + offset;
      if (!takes_receives_) chain_[i].wr.rdma.remote_addr = reinterpret_cast<uint64_t>(to_.buffer) + offset;
    }
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(from_.qps[next_sender_], chain_.data(), &bad) != 0) fail("ibv_post_send");
    next_sender_ = next_sender_ + 1 == from_.qps.size() ? 0 : next_sender_ + 1;
  }
  void post_receives(ibv_qp* qp) {
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp, receives_.data(), &bad) != 0) fail("ibv_post_recv");
  }
  static uint32_t reap(const Side& side) {
    std::array<ibv_wc, kPollBatch> completions;
    const int count = ibv_poll_cq(side.cq, kPollBatch, completions.data());
    if (count < 0) fail("ibv_poll_cq");
    for (int i = 0; i < count; ++i)
      if (completions[static_cast<size_t>(i)].status != IBV_WC_SUCCESS) fail("a completion");
    return static_cast<uint32_t>(count);
  }

  Side& from_;
  Side& to_;
  std::array<ibv_sge, kChain> pieces_{};
  std::array<ibv_sge, kChain> landing_{};
  std::array<ibv_send_wr, kChain> chain_{};
  std::array<ibv_recv_wr, kChain> receives_{};
  bool takes_receives_ = false;
  const uint32_t stride_bytes_;
  uint32_t slots_ = 1;
  uint32_t next_slot_ = 0;
  size_t next_sender_ = 0;
  size_t next_receiver_ = 0;
  uint32_t received_ = 0;
};

/// WRITEs of many QPs, 16 under way on each, four to a chain, each with bytes of its own: what completes is
/// posted anew, as faultline-perf does it. What a QP costs that no cache holds.
class Crowd {
 public:
  static constexpr uint32_t kUnderWay = 16;
  static constexpr uint32_t kBytes = 64;
  static constexpr uint32_t kLinks = 4;
  static constexpr ibv_qp_cap kCap{64, 1, 1, 1, 64};
  static constexpr int kCompletions = 262'144;

  [[nodiscard]] static size_t buffer_bytes(uint32_t qps) { return size_t{qps} * kUnderWay * kBytes; }

  Crowd(Side& from, Side& to) : from_(from), to_(to), next_slots_(from.qps.size()) {
    for (uint32_t i = 0; i < kLinks; ++i) {
      const bool last = i + 1 == kLinks;
      pieces_[i] = {0, kBytes, from.mr->lkey};
      chain_[i].next = last ? nullptr : &chain_[i + 1];
      chain_[i].sg_list = &pieces_[i];
      chain_[i].num_sge = 1;
      chain_[i].opcode = IBV_WR_RDMA_WRITE;
      chain_[i].send_flags = last ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0U;
      chain_[i].wr.rdma = {0, to.mr->rkey};
    }
    for (uint32_t posted = 0; posted < kUnderWay; posted += kLinks)
      for (uint32_t qp = 0; qp < from.qps.size(); ++qp) post_chain(qp);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  /// So many messages come to their end, and as many are posted.
  void run(uint32_t messages) {
    for (uint32_t done = 0; done < messages;) {
      const uint32_t completed = reap();
      done += completed * kLinks;
      faultline_progress(to_.context);
    }
  }
  void drain() {
    posting_ = false;
    while (under_way_ != 0) {
      reap();
      faultline_progress(to_.context);
    }
  }

 private:
  void post_chain(uint32_t qp) {
    uint32_t& slot = next_slots_[qp];
    for (uint32_t i = 0; i < kLinks; ++i) {
      const uint64_t offset = (uint64_t{qp} * kUnderWay + slot + i) * kBytes;
      chain_[i].wr_id = qp;
      pieces_[i].addr = reinterpret_cast<uint64_t>(from_.buffer) + offset;
      chain_[i].wr.rdma.remote_addr = reinterpret_cast<uint64_t>(to_.buffer) + offset;
    }
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(from_.qps[qp], chain_.data(), &bad) != 0) fail("ibv_post_send");
    slot = (slot + kLinks) % kUnderWay;
    ++under_way_;
  }
  uint32_t reap() {
    std::array<ibv_wc, kPollBatch> completions;
    const int count = ibv_poll_cq(from_.cq, kPollBatch, completions.data());
    if (count < 0) fail("ibv_poll_cq");
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<size_t>(i)];
      if (completion.status != IBV_WC_SUCCESS) fail("a completion");
      --under_way_;
      if (posting_) post_chain(static_cast<uint32_t>(completion.wr_id));
    }
    return static_cast<uint32_t>(count);
  }

  Side& from_;
  Side& to_;
  std::vector<uint32_t> next_slots_;
  std::array<ibv_sge, kLinks> pieces_{};
  std::array<ibv_send_wr, kLinks> chain_{};
  uint64_t under_way_ = 0;
  bool posting_ = true;
};

void crowd_write(benchmark::State& state) {
  const auto qps = static_cast<uint32_t>(state.range(0));
  Side from(0, qps, Crowd::buffer_bytes(qps), true, Crowd::kCap, Crowd::kCompletions);
  Side to(1, qps, Crowd::buffer_bytes(qps), true, Crowd::kCap, Crowd::kCompletions);
  from.connect(to);
  to.connect(from);
  Crowd crowd(from, to);
  crowd.run(2 * qps * Crowd::kUnderWay);  // pages, caches
  constexpr uint32_t kMessages = 1024;
  for ([[maybe_unused]] auto _ : state) crowd.run(kMessages);
  crowd.drain();
  state.SetItemsProcessed(state.iterations() * kMessages);
}
BENCHMARK(crowd_write)->ArgName("qps")->Arg(16)->Arg(10'000);

void run(benchmark::State& state, ibv_wr_opcode opcode, bool on_demand = true) {
  const auto bytes = static_cast<uint32_t>(state.range(0));
  const auto qps = static_cast<uint32_t>(state.range(1));
  const size_t buffer_bytes = size_t{kDepth} * std::max<size_t>(bytes, 64);
  const int first = 2 * state.thread_index();
  Side from(first, qps, buffer_bytes, on_demand);
  Side to(first + 1, qps, buffer_bytes, on_demand);
  from.connect(to);
  to.connect(from);
  Stream stream(from, to, opcode, bytes, bytes);
  stream.run_batch();  // pages, caches
  for ([[maybe_unused]] auto _ : state) stream.run_batch();
  state.SetItemsProcessed(state.iterations() * kDepth);
  state.SetBytesProcessed(state.iterations() * kDepth * bytes);
}

/// Datagrams between two QPs.
void ud_send(benchmark::State& state) {
  const auto bytes = static_cast<uint32_t>(state.range(0));
  const size_t buffer_bytes = size_t{kDepth} * std::max<size_t>(bytes, 64);
  Side from(0, 1, buffer_bytes, true, kCap, 65'536, IBV_QPT_UD);
  Side to(1, 1, buffer_bytes, true, kCap, 65'536, IBV_QPT_UD);
  from.address(to);
  to.address(from);
  Stream stream(from, to, IBV_WR_SEND, bytes, bytes);
  stream.run_batch();
  for ([[maybe_unused]] auto _ : state) stream.run_batch();
  state.SetItemsProcessed(state.iterations() * kDepth);
}

void rc_write(benchmark::State& state) {
  run(state, IBV_WR_RDMA_WRITE);
}
/// Each message meets a page that the program has just given up: a minor fault.
void rc_write_fault(benchmark::State& state) {
  constexpr uint32_t kPageBytes = 4096;
  const auto bytes = static_cast<uint32_t>(state.range(0));
  Side from(0, 1, size_t{kDepth} * kPageBytes, true);
  Side to(1, 1, size_t{kDepth} * kPageBytes, true);
  from.connect(to);
  to.connect(from);
  Stream stream(from, to, IBV_WR_RDMA_WRITE, bytes, kPageBytes);
  stream.run_batch();
  for ([[maybe_unused]] auto _ : state) {
    state.PauseTiming();
    if (madvise(to.buffer, to.buffer_bytes, MADV_DONTNEED) != 0) fail("madvise");
    state.ResumeTiming();
    stream.run_batch();
  }
  state.SetItemsProcessed(state.iterations() * kDepth);
}
void rc_send(benchmark::State& state) {
  run(state, IBV_WR_SEND);
}
void rc_read(benchmark::State& state) {
  run(state, IBV_WR_RDMA_READ);
}
void rc_write_pinned(benchmark::State& state) {
  run(state, IBV_WR_RDMA_WRITE, false);
}
void rc_send_pinned(benchmark::State& state) {
  run(state, IBV_WR_SEND, false);
}
void rc_read_pinned(benchmark::State& state) {
  run(state, IBV_WR_RDMA_READ, false);
}
BENCHMARK(rc_write)
    ->ArgNames({"bytes", "qps"})
    ->ArgsProduct({{64}, {1, 16}})
    ->ArgsProduct({{4096, 65'536}, {1}});
BENCHMARK(rc_write_fault)->ArgNames({"bytes", "qps"})->Args({64, 1});
BENCHMARK(rc_send)->ArgNames({"bytes", "qps"})->ArgsProduct({{64}, {1, 16}})->Args({4096, 1});
BENCHMARK(rc_read)
    ->ArgNames({"bytes", "qps"})
    ->ArgsProduct({{64}, {1, 16}})
    ->ArgsProduct({{4096, 65'536}, {1}});
BENCHMARK(ud_send)->ArgNames({"bytes", "qps"})->Args({64, 1});
BENCHMARK(rc_write_pinned)->ArgNames({"bytes", "qps"})->ArgsProduct({{64, 4096, 65'536}, {1}});
BENCHMARK(rc_send_pinned)->ArgNames({"bytes", "qps"})->ArgsProduct({{64, 4096}, {1}});
BENCHMARK(rc_read_pinned)->ArgNames({"bytes", "qps"})->ArgsProduct({{64, 4096, 65'536}, {1}});

std::vector<int> allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  return cpus;
}

/// Each thread on a CPU of its own, and back where it was: the first is the program's.
void cores_write(benchmark::State& state, const std::vector<int>& cpus) {
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpus[static_cast<size_t>(state.thread_index())], &one);
  sched_setaffinity(0, sizeof one, &one);
  run(state, IBV_WR_RDMA_WRITE);
  sched_setaffinity(0, sizeof before, &before);
}

/// From one core to as many as there are, but only where there are several.
size_t register_cores(const std::vector<int>& cpus) {
  constexpr size_t kMostCores = 8;
  const size_t most = std::min(cpus.size(), kMostCores);
  if (most < 2) return 1;
  for (size_t cores = 1; cores <= most; cores *= 2)
    benchmark::RegisterBenchmark("cores_write", cores_write, cpus)
        ->ArgNames({"bytes", "qps"})
        ->Args({64, 1})
        ->Threads(static_cast<int>(cores))
        ->UseRealTime();
  return most;
}

/// The configuration, while this lives: for each core two devices on a wire.
class Wires {
 public:
  explicit Wires(size_t count) {
    folder_ = (std::filesystem::temp_directory_path() / "fl-ring-bench-XXXXXX").string();
    if (mkdtemp(folder_.data()) == nullptr) fail("mkdtemp");
    const std::string path = folder_ + "/devices.toml";
    std::ofstream file(path);
    for (size_t wire = 0; wire < count; ++wire)
      for (const char side : {'a', 'b'})
        file << "[[device]]\nname = \"faultline" << wire << side << "\"\nip = \"198.18." << wire << "."
             << (side == 'a' ? 1 : 2) << "/24\"\n[device.port]\nkind = \"ring\"\nwire = \"w" << wire
             << "\"\nside = \"" << side << "\"\n";
    file.close();
    if (faultline_configure(path.c_str()) != 0) fail("faultline_configure");
  }
  ~Wires() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;

 private:
  std::string folder_;
};

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const Wires wires(register_cores(allowed_cpus()));
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
