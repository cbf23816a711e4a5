// SPDX-License-Identifier: BSD-3-Clause
// What an access that hits costs, pinned and on demand, with a window and without, and how long a cold page
// takes from request to resolution.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include "odp/copy/tolerant_copy.hpp"
#include "odp/regions/memory_domain.hpp"

namespace faultline::odp {
namespace {

constexpr size_t kPage = 4096;

struct Setup {
  Setup(size_t bytes, uint32_t access) : size(bytes) {
    std::string error;
    domain = MemoryDomain::create({}, error);
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // Faults of 4 KiB, whatever the system's setting.
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    key = domain
              ->register_region({.domain = 1,
                                 .address = reinterpret_cast<uint64_t>(memory),
                                 .length_bytes = bytes,
                                 .iova = 0,
                                 .access = kLocalWrite | kRemoteWrite | kRemoteRead | access})
              .key;
    session = domain->attach_engine();
  }
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;
  ~Setup() {
    session.reset();
    domain.reset();
    munmap(memory, size);
  }

  void make_resident() const {
    const PrefetchRange all{key, 0, size};
    (void)domain->prefetch(1, {&all, 1}, PrefetchKind::write, true);
  }

  size_t size;
  void* memory = nullptr;
  std::unique_ptr<MemoryDomain> domain;
  std::unique_ptr<EngineSession> session;
  Key key = 0;
};

void hit(benchmark::State& state, uint32_t access, bool write) {
  Setup setup(16 * kPage, access);
  const auto length = static_cast<size_t>(state.range(0));
  setup.make_resident();
  const Target target{setup.key, 1, write ? kRemoteWrite : kRemoteRead};
  std::vector<uint8_t> bytes(length, 1);
  uint64_t va = 0;
  for (auto _ : state) {
    setup.session->enter();
    const Outcome outcome =
        write ? setup.session->write(target, va, bytes) : setup.session->read(target, va, bytes);
    if (outcome != Outcome::done) state.SkipWithError("not a hit");
    va = (va + kPage) % setup.size;
  }
  setup.session->leave();
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK_CAPTURE(hit, write_pinned, 0U, true)->Arg(64)->Arg(4096);
BENCHMARK_CAPTURE(hit, write_on_demand, kOnDemand, true)->Arg(64)->Arg(4096);
BENCHMARK_CAPTURE(hit, read_pinned, 0U, false)->Arg(64)->Arg(4096);
BENCHMARK_CAPTURE(hit, read_on_demand, kOnDemand, false)->Arg(64)->Arg(4096);

void atomic(benchmark::State& state, uint32_t access, AtomicOp op) {
  Setup setup(16 * kPage, access | kRemoteAtomic);
  setup.make_resident();
  const Target target{setup.key, 1, kRemoteAtomic};
  uint64_t va = 0;
  uint64_t original = 0;
  for (auto _ : state) {
    setup.session->enter();
    if (setup.session->atomic(target, va, {op, original, 1}, original) != Outcome::done)
      state.SkipWithError("not a hit");
    va = (va + kPage) % setup.size;
  }
  setup.session->leave();
}
BENCHMARK_CAPTURE(atomic, fetch_add_pinned, 0U, AtomicOp::fetch_add);
BENCHMARK_CAPTURE(atomic, fetch_add_on_demand, kOnDemand, AtomicOp::fetch_add);
BENCHMARK_CAPTURE(atomic, compare_swap_pinned, 0U, AtomicOp::compare_swap);
BENCHMARK_CAPTURE(atomic, compare_swap_on_demand, kOnDemand, AtomicOp::compare_swap);
BENCHMARK_CAPTURE(atomic, store_pinned, 0U, AtomicOp::store);
BENCHMARK_CAPTURE(atomic, store_on_demand, kOnDemand, AtomicOp::store);

/// A type 2 window over the whole of a region.
struct BoundWindow {
  static constexpr uint32_t kQpn = 1;

  explicit BoundWindow(Setup& setup) : session(*setup.session) {
    key = setup.domain->allocate_window(1, WindowType::type2).key;
    binding = {.type = WindowType::type2,
               .domain = 1,
               .qpn = kQpn,
               .region = setup.key,
               .length_bytes = setup.size,
               .access = kRemoteWrite | kRemoteRead};
  }
  [[nodiscard]] Outcome bind() {
    binding.window = key;
    key = binding.new_key = (key & ~0xffU) | ((key + 1) & 0xff);
    return session.bind_window(binding);
  }
  [[nodiscard]] Outcome invalidate() const { return session.invalidate(key, 1, kQpn, false); }

  EngineSession& session;
  WindowBinding binding;
  Key key = 0;
};

/// Beside `hit`: what the window in between costs.
void hit_through_window(benchmark::State& state, uint32_t access) {
  Setup setup(16 * kPage, access | kMemoryWindowBind);
  setup.make_resident();
  BoundWindow window(setup);
  setup.session->enter();
  if (window.bind() != Outcome::done) state.SkipWithError("not bound");
  const Target target{window.key, 1, kRemoteWrite, BoundWindow::kQpn};
  const std::vector<uint8_t> bytes(static_cast<size_t>(state.range(0)), 1);
  uint64_t va = 0;
  for (auto _ : state) {
    setup.session->enter();
    if (setup.session->write(target, va, bytes) != Outcome::done) state.SkipWithError("not a hit");
    va = (va + kPage) % setup.size;
  }
  setup.session->leave();
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK_CAPTURE(hit_through_window, write_pinned, 0U)->Arg(64)->Arg(4096);
BENCHMARK_CAPTURE(hit_through_window, write_on_demand, kOnDemand)->Arg(64)->Arg(4096);

void bind_and_invalidate(benchmark::State& state) {
  Setup setup(16 * kPage, kOnDemand | kMemoryWindowBind);
  BoundWindow window(setup);
  for (auto _ : state) {
    setup.session->enter();
    if (window.bind() != Outcome::done || window.invalidate() != Outcome::done)
      state.SkipWithError("refused");
  }
  setup.session->leave();
}
BENCHMARK(bind_and_invalidate);

void allocate_and_deallocate_window(benchmark::State& state) {
  const Setup setup(kPage, kMemoryWindowBind);
  for (auto _ : state) {
    const Key key = setup.domain->allocate_window(1, WindowType::type2).key;
    if (setup.domain->deallocate_window(key) != 0) state.SkipWithError("refused");
  }
}
BENCHMARK(allocate_and_deallocate_window);

void plain_memcpy(benchmark::State& state) {
  std::vector<uint8_t> from(static_cast<size_t>(state.range(0)), 1);
  std::vector<uint8_t> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(plain_memcpy)->Arg(64)->Arg(4096);

void cold_minor_fault(benchmark::State& state) {
  constexpr size_t kPages = 20'000;
  Setup setup(kPages * kPage, kOnDemand);
  const Target target{setup.key, 1, kRemoteWrite};
  std::vector<double> latencies_us;
  latencies_us.reserve(kPages);
  std::array<Resolution, 1> resolution;
  uint64_t va = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    setup.session->enter();
    if (!setup.session->request_fault({target, va, kPage, 1})) state.SkipWithError("queue full");
    while (setup.session->take_resolutions(resolution) == 0) {
      if (setup.session->should_yield()) std::this_thread::yield();
      setup.session->enter();
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(elapsed.count());
    latencies_us.push_back(elapsed.count() * 1e6);
    va += kPage;
  }
  setup.session->leave();
  std::sort(latencies_us.begin(), latencies_us.end());
  state.counters["p50_us"] = latencies_us[latencies_us.size() / 2];
  state.counters["p99_us"] = latencies_us[latencies_us.size() * 99 / 100];
}
BENCHMARK(cold_minor_fault)->UseManualTime()->Iterations(20'000);

}  // namespace
}  // namespace faultline::odp

BENCHMARK_MAIN();
