// SPDX-License-Identifier: BSD-3-Clause
// What the library's hooks add to a program's own calls: munmap, madvise and mprotect of one page, by the
// bare system call and through the hook, in memory without regions, with none, one and 100,000 regions
// elsewhere. Regions lie in every second page of a mapping of their own.
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/regions/memory_domain.hpp"

namespace faultline::odp {
namespace {

constexpr size_t kPage = 4096;

/// A domain with so many regions of one page.
class Regions {
 public:
  explicit Regions(size_t count) {
    std::string error;
    domain_ = MemoryDomain::create({}, error);
    if (domain_ == nullptr) throw std::runtime_error(error);
    if (count == 0) return;
    auto* const memory = static_cast<uint8_t*>(mmap(nullptr, 2 * count * kPage, PROT_READ | PROT_WRITE,
                                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory == MAP_FAILED) throw std::bad_alloc();
    for (size_t i = 0; i < count; ++i) {
      const auto address = reinterpret_cast<uint64_t>(memory + 2 * i * kPage);
      const RegionResult result = domain_->register_region({.domain = 1,
                                                            .address = address,
                                                            .length_bytes = kPage,
                                                            .iova = address,
                                                            .access = kLocalWrite | kOnDemand});
      if (result.error != 0) throw std::runtime_error("no region");
    }
  }

 private:
  std::unique_ptr<MemoryDomain> domain_;
};

enum class Way : uint8_t { bare, hooked };

void* new_page() {
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

void unmap(benchmark::State& state) {
  const Regions regions(static_cast<size_t>(state.range(0)));
  const auto way = static_cast<Way>(state.range(1));
  for (auto _ : state) {
    void* const page = new_page();
    benchmark::DoNotOptimize(way == Way::bare ? static_cast<int>(syscall(SYS_munmap, page, kPage))
                                              : munmap(page, kPage));
  }
}

void advise(benchmark::State& state) {
  const Regions regions(static_cast<size_t>(state.range(0)));
  const auto way = static_cast<Way>(state.range(1));
  void* const page = new_page();
  for (auto _ : state)
    benchmark::DoNotOptimize(way == Way::bare
                                 ? static_cast<int>(syscall(SYS_madvise, page, kPage, MADV_DONTNEED))
                                 : madvise(page, kPage, MADV_DONTNEED));
}

void protect(benchmark::State& state) {
  const Regions regions(static_cast<size_t>(state.range(0)));
  const auto way = static_cast<Way>(state.range(1));
  void* const page = new_page();
  int right = PROT_READ;
  for (auto _ : state) {
    benchmark::DoNotOptimize(way == Way::bare ? static_cast<int>(syscall(SYS_mprotect, page, kPage, right))
                                              : mprotect(page, kPage, right));
    right ^= PROT_READ;
  }
}

void ways(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"regions", "hooked"});
  for (const int64_t regions : {0, 1, 100'000})
    for (const int64_t way : {0, 1}) bench->Args({regions, way});
}

BENCHMARK(unmap)->Apply(ways);
BENCHMARK(advise)->Apply(ways);
BENCHMARK(protect)->Apply(ways);

}  // namespace
}  // namespace faultline::odp

BENCHMARK_MAIN();
