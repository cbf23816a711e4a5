// SPDX-License-Identifier: BSD-3-Clause
// What verbs itself costs a program: posting and polling, on a device whose port is never used. What is
// posted is retired at once, what is polled is pushed beforehand (queue_bench has that half's own price).
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "stack/verbs/objects/backend.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "tests/bench/closed_port.hpp"

namespace faultline::verbs {

namespace {

DeviceDescription description_of_device() {
  DeviceDescription description;
  description.name = "bench0";
  description.mac.bytes = {2, 0x46, 0x4c, 0, 0, 1};
  description.gids = {wire::Gid::from_ipv4(0xc6120001)};
  return description;
}

/// A device that is never driven: what is posted stays in its rings.
class StillDevice final : public DeviceBackend {
 public:
  explicit StillDevice(std::unique_ptr<odp::MemoryDomain> memory)
      : memory_(std::move(memory)),
        session_(memory_->attach_engine()),
        core_(transport::CoreConfig{}, *session_, port_) {}

  const DeviceDescription& description() const override { return description_; }
  odp::MemoryDomain& memory() override { return *memory_; }
  transport::Core& core(uint32_t /*index*/) override { return core_; }
  void call(uint32_t /*index*/, void (*function)(void*), void* argument) override { function(argument); }
  void drive() override {}
  void rest() override {}
  int resolve(const wire::Gid& /*gid*/, wire::MacAddress& mac) override {
    mac = description_.mac;
    return 0;
  }
  int join_multicast(const wire::Gid& /*gid*/) override { return 0; }
  void leave_multicast(const wire::Gid& /*gid*/) override {}
  TimeNs now() override { return 1; }
  bool link_up() override { return true; }
  PortCounters port_counters() override { return {}; }
  void set_event_sink(transport::EventSink* /*sink*/) override {}
  double measure_port_tx(size_t /*frame_bytes*/, unsigned /*milliseconds*/) override { return 0; }
  double measure_port_rx(unsigned /*milliseconds*/) override { return 0; }

 private:
  const DeviceDescription description_ = description_of_device();
  const std::unique_ptr<odp::MemoryDomain> memory_;
  const std::unique_ptr<odp::EngineSession> session_;
  ClosedPort port_;
  transport::Core core_;
};

constexpr uint32_t kDepth = 128;
constexpr uint32_t kBytes = 64;
constexpr uint32_t kInlineBytes = 64;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "verbs_bench: %s\n", what);
  std::_Exit(1);
}

/// A QP in RTS on the one device, connected to itself.
struct Program {
  Program() {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    if (list == nullptr || count != 1) fail("ibv_get_device_list");
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 4096, nullptr, nullptr, 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {kDepth, kDepth, 1, 1, kInlineBytes};
    qp = ibv_create_qp(pd, &init);
    if (qp == nullptr) fail("ibv_create_qp");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    int error =
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = qp->qp_num;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 16;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    if (ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) != 0) fail("ibv_query_gid");
    if (error == 0)
      error = ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr.qp_state = IBV_QPS_RTS;
    if (error == 0)
      error = ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    if (error != 0) fail("ibv_modify_qp");
  }
  ~Program() {
    ibv_destroy_qp(qp);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
};

/// A chain of `chain` requests, posted in one call.
void post_send(benchmark::State& state, ibv_wr_opcode opcode, unsigned flags) {
  Program program;
  const auto chain = static_cast<size_t>(state.range(0));
  std::vector<uint8_t> payload(kBytes);
  std::vector<ibv_sge> pieces(chain, {reinterpret_cast<uint64_t>(payload.data()), kBytes, 0x100});
  std::vector<ibv_send_wr> requests(chain);
  for (size_t i = 0; i < chain; ++i) {
    requests[i].next = i + 1 == chain ? nullptr : &requests[i + 1];
    requests[i].sg_list = &pieces[i];
    requests[i].num_sge = 1;
    requests[i].opcode = opcode;
    requests[i].send_flags = flags;
    requests[i].wr.rdma = {0x1000, 0x200};
  }
  transport::SendRing& ring = *qp_of(program.qp).send_ring;
  for ([[maybe_unused]] auto _ : state) {
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(program.qp, requests.data(), &bad) != 0) fail("ibv_post_send");
    ring.retire_to(ring.tail());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK_CAPTURE(post_send, write, IBV_WR_RDMA_WRITE, 0)->ArgNames({"chain"})->Arg(1)->Arg(16);
BENCHMARK_CAPTURE(post_send, write_inline, IBV_WR_RDMA_WRITE, IBV_SEND_INLINE)
    ->ArgNames({"chain"})
    ->Arg(1)
    ->Arg(16);
BENCHMARK_CAPTURE(post_send, read, IBV_WR_RDMA_READ, 0)->ArgNames({"chain"})->Arg(16);
BENCHMARK_CAPTURE(post_send, send, IBV_WR_SEND, IBV_SEND_SIGNALED)->ArgNames({"chain"})->Arg(16);

void post_receive(benchmark::State& state) {
  Program program;
  const auto chain = static_cast<size_t>(state.range(0));
  std::vector<uint8_t> landing(kBytes);
  std::vector<ibv_sge> pieces(chain, {reinterpret_cast<uint64_t>(landing.data()), kBytes, 0x100});
  std::vector<ibv_recv_wr> requests(chain);
  for (size_t i = 0; i < chain; ++i)
    requests[i] = {i, i + 1 == chain ? nullptr : &requests[i + 1], &pieces[i], 1};
  transport::ReceiveRing& ring = *qp_of(program.qp).receive_ring;
  for ([[maybe_unused]] auto _ : state) {
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(program.qp, requests.data(), &bad) != 0) fail("ibv_post_recv");
    ring.retire_to(ring.tail());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(post_receive)->ArgNames({"chain"})->Arg(1)->Arg(16);

void poll_cq(benchmark::State& state) {
  Program program;
  transport::CompletionQueue& queue = cq_of(program.cq);
  std::array<ibv_wc, 32> taken;
  transport::Completion completion;
  const auto waiting = static_cast<uint32_t>(state.range(0));
  for ([[maybe_unused]] auto _ : state) {
    for (uint32_t i = 0; i < waiting; ++i) benchmark::DoNotOptimize(queue.push(completion, i));
    if (ibv_poll_cq(program.cq, static_cast<int>(taken.size()), taken.data()) != static_cast<int>(waiting))
      fail("ibv_poll_cq");
  }
  if (waiting != 0) state.SetItemsProcessed(state.iterations() * waiting);
}
BENCHMARK(poll_cq)->ArgNames({"waiting"})->Arg(0)->Arg(1)->Arg(16)->Arg(32);

}  // namespace

std::vector<DeviceDescription> list_devices(std::string& /*error*/) {
  return {description_of_device()};
}
bool expects_link(const std::string& /*name*/) {
  return true;
}
std::shared_ptr<DeviceBackend> open_device(const std::string& /*name*/, std::string& error) {
  auto memory = odp::MemoryDomain::create({}, error);
  if (memory == nullptr) return nullptr;
  return std::make_shared<StillDevice>(std::move(memory));
}
double measure_copy_crc(size_t /*bytes*/, unsigned /*milliseconds*/) {
  return 0;
}
void configure(const std::string& /*path*/) {}

}  // namespace faultline::verbs

BENCHMARK_MAIN();
