// SPDX-License-Identifier: BSD-3-Clause
// What lies between an app thread and an engine, and the engine's clock: the send ring, the doorbell, the
// completion queue, the timer wheel. One thread plays both sides: cache lines do not travel here.
#include <array>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "stack/transport/core/core.hpp"
#include "stack/transport/qp/completion_queue.hpp"
#include "stack/transport/qp/work_queue.hpp"
#include "stack/transport/shared/timer_wheel.hpp"
#include "tests/bench/closed_port.hpp"

namespace faultline::transport {
namespace {

constexpr uint32_t kBatch = 16;

/// Slots prepared, published and retired; what is written into them is verbs' (verbs_bench).
void send_ring_pass(benchmark::State& state) {
  SendRing ring(128, 1, 0);
  for ([[maybe_unused]] auto _ : state) {
    for (uint32_t i = 0; i < kBatch; ++i) {
      SendWqe* const wqe = ring.prepare();
      wqe->wr_id = i;
      ring.advance();
    }
    ring.publish();
    for (uint32_t at = ring.head(), end = ring.tail(); at != end; ++at) {
      benchmark::DoNotOptimize(ring.header_at(at)->wr_id);
      ring.retire_to(at + 1);
    }
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(send_ring_pass);

void completion_push_poll(benchmark::State& state) {
  CompletionQueue cq(1024);
  std::array<Completion, kBatch> taken;
  Completion completion;
  for ([[maybe_unused]] auto _ : state) {
    for (uint32_t i = 0; i < kBatch; ++i) {
      completion.wr_id = i;
      benchmark::DoNotOptimize(cq.push(completion, i));
    }
    benchmark::DoNotOptimize(cq.poll(taken));
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(completion_push_poll);

/// Memory that nothing here gets as far as.
class NoMemory final : public odp::MemoryAccess {
 public:
  odp::Outcome check(const odp::Target&, uint64_t, uint64_t) override { return odp::Outcome::violation; }
  odp::Outcome probe(const odp::Target&, uint64_t, uint64_t) override { return odp::Outcome::violation; }
  odp::Outcome write(const odp::Target&, uint64_t, std::span<const uint8_t>) override {
    return odp::Outcome::violation;
  }
  odp::Outcome read(const odp::Target&, uint64_t, std::span<uint8_t>) override {
    return odp::Outcome::violation;
  }
  odp::Outcome read_with_crc(const odp::Target&, uint64_t, std::span<uint8_t>, uint32_t&) override {
    return odp::Outcome::violation;
  }
  odp::Outcome atomic(const odp::Target&, uint64_t, const odp::AtomicRequest&, uint64_t&) override {
    return odp::Outcome::violation;
  }
  odp::Outcome flush(const odp::Target&, uint64_t, uint64_t, odp::FlushKind) override {
    return odp::Outcome::violation;
  }
  bool range_of(odp::Key, uint64_t&, uint64_t&) override { return false; }
  odp::Outcome bind_window(const odp::WindowBinding&) override { return odp::Outcome::violation; }
  odp::Outcome invalidate(odp::Key, odp::ProtectionDomain, uint32_t, bool) override {
    return odp::Outcome::violation;
  }
  bool request_fault(const odp::FaultRequest&) override { return false; }
  size_t take_resolutions(std::span<odp::Resolution>) override { return 0; }
};

/// Rung, taken, the QP served, and nothing to send: `qps` doorbells to a turn.
void doorbell(benchmark::State& state) {
  NoMemory memory;
  ClosedPort port;
  Core core(CoreConfig{}, memory, port);
  CompletionQueue cq(16);
  QpInit init;
  init.domain = 1;
  init.send_cq = init.receive_cq = &cq;
  std::vector<QueuePair*> qps;
  for (int64_t i = 0; i < state.range(0); ++i) qps.push_back(core.create_qp(init));
  TimeNs now = 1;
  for ([[maybe_unused]] auto _ : state) {
    for (QueuePair* qp : qps) core.ring_doorbell(qp);
    core.poll(now += 1000);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  for (QueuePair* qp : qps) core.destroy_qp(qp);
}
BENCHMARK(doorbell)->ArgNames({"qps"})->Arg(1)->Arg(64);

/// A turn of a core that has nothing to do.
void idle_turn(benchmark::State& state) {
  NoMemory memory;
  ClosedPort port;
  Core core(CoreConfig{}, memory, port);
  TimeNs now = 1;
  for ([[maybe_unused]] auto _ : state) core.poll(now += 1000);
}
BENCHMARK(idle_turn);

/// Each timer is armed and fires, 200 us later, among as many others as there are QPs.
void timer_arm_pop(benchmark::State& state) {
  TimerWheel wheel;
  std::vector<TimerNode> nodes(static_cast<size_t>(state.range(0)));
  TimeNs now = 1;
  for ([[maybe_unused]] auto _ : state) {
    for (TimerNode& node : nodes) {
      now += 100;
      wheel.arm(node, now + 200'000, now);
    }
    now += 300'000;
    while (TimerNode* node = wheel.pop_due(now)) benchmark::DoNotOptimize(node);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(timer_arm_pop)->ArgNames({"timers"})->Arg(1)->Arg(1000);

/// What an acknowledgement does: the deadline moves on, the timer stays where it is.
void timer_move_on(benchmark::State& state) {
  TimerWheel wheel;
  TimerNode node;
  TimeNs now = 1;
  for ([[maybe_unused]] auto _ : state) {
    now += 100;
    wheel.arm(node, now + 1'000'000'000, now);
    benchmark::DoNotOptimize(wheel.pop_due(now));
  }
  wheel.disarm(node);
}
BENCHMARK(timer_move_on);

}  // namespace
}  // namespace faultline::transport

BENCHMARK_MAIN();
