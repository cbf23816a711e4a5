// SPDX-License-Identifier: BSD-3-Clause
// What a payload's way into a frame costs: the copy, the sum, and both at once by each routine that this CPU
// has. Frames are sized and laid out as a pool's are; the region is one page, or fits in the last cache, or
// is larger than all caches.
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "odp/copy/fault_handler.hpp"
#include "odp/copy/tolerant_copy.hpp"
#include "odp/copy/tolerant_copy_crc.hpp"
#include "stack/wire/packet/icrc.hpp"

namespace faultline::odp {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kFrameBytes = 4864;     // a buffer of the pool, with its headroom and header
constexpr size_t kPayloadAt = 128 + 54;  // headroom, then Ethernet, IPv4, UDP and BTH
constexpr size_t kFrames = 64;

enum Region : int64_t { kHot = 1, kShared = 8 << 20 >> 12, kCold = 64 << 20 >> 12 };  // pages

struct Stage {
  explicit Stage(size_t pages) : frames((kFrames + 1) * kFrameBytes), region(pages * kPage, 0x5a) {}

  /// The next packet's two ends.
  void advance() {
    frame = frame + 1 == kFrames ? 0 : frame + 1;
    at = at + 2 * kPage > region.size() ? 0 : at + kPage;
  }
  [[nodiscard]] uint8_t* to() { return frames.data() + frame * kFrameBytes + kPayloadAt; }
  [[nodiscard]] uint8_t* from() { return region.data() + at; }

  std::vector<uint8_t> frames;
  std::vector<uint8_t> region;
  size_t frame = 0;
  size_t at = 0;
};

template <typename Step>
void run(benchmark::State& state, Step step) {
  install_fault_handler();
  const auto bytes = static_cast<size_t>(state.range(0));
  Stage stage(static_cast<size_t>(state.range(1)));
  uint32_t crc = 0;
  for ([[maybe_unused]] auto _ : state) {
    step(stage.to(), stage.from(), bytes, crc);
    benchmark::ClobberMemory();
    stage.advance();
  }
  benchmark::DoNotOptimize(crc);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

void require(benchmark::State& state, bool truth) {
  if (!truth) state.SkipWithError("the copy came to an early end");
}

void plain_memcpy(benchmark::State& state) {
  run(state, [](void* to, const void* from, size_t bytes, uint32_t&) { std::memcpy(to, from, bytes); });
}

void copy(benchmark::State& state, CopyRoutine routine) {
  if (!copy_routine_supported(routine)) return state.SkipWithError("this CPU lacks the routine");
  run(state, [&](void* to, const void* from, size_t bytes, uint32_t&) {
    require(state, tolerant_copy_with(routine, to, from, bytes) == bytes);
  });
}

/// As a receiver does, whose frame is in the first cache.
void sum_frame(benchmark::State& state) {
  run(state, [](uint8_t* to, const void*, size_t bytes, uint32_t& crc) {
    crc = wire::icrc_update(crc, {to, bytes});
  });
}

void copy_then_sum(benchmark::State& state) {
  run(state, [&](uint8_t* to, const void* from, size_t bytes, uint32_t& crc) {
    require(state, tolerant_copy(to, from, bytes) == bytes);
    crc = wire::icrc_update(crc, {to, bytes});
  });
}

void copy_and_sum(benchmark::State& state, CopyCrcRoutine routine) {
  if (!copy_crc_routine_supported(routine)) return state.SkipWithError("this CPU lacks the routine");
  run(state, [&](void* to, const void* from, size_t bytes, uint32_t& crc) {
    require(state, tolerant_copy_crc_with(routine, to, from, bytes, crc) == bytes);
  });
}

/// A receiver's two passes: the frame in hand is copied out when it is known to be right.
void sum_then_copy_out(benchmark::State& state) {
  run(state, [&](uint8_t* frame, uint8_t* region, size_t bytes, uint32_t& crc) {
    crc = wire::icrc_update(crc, {frame, bytes});
    require(state, tolerant_copy(region, frame, bytes) == bytes);
  });
}

/// The same, the next frame being summed up beside the copy.
void copy_out_beside_sum(benchmark::State& state) {
  if (!copy_crc_routine_supported(CopyCrcRoutine::avx512))
    return state.SkipWithError("this CPU lacks the routine");
  run(state, [&](uint8_t* frame, uint8_t* region, size_t bytes, uint32_t& crc) {
    const uint8_t* const next = frame + kFrameBytes;  // one more than the stage hands out is there
    CrcBeside sum{{next, bytes}, crc, false};
    require(state, tolerant_copy_beside(region, frame, bytes, sum) == bytes);
    crc = sum.done ? sum.crc : wire::icrc_update(crc, {next, bytes});
  });
}

void lengths(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"bytes", "pages"});
  for (const int64_t bytes : {64, 256, 512, 1024, 4096}) benchmark->Args({bytes, kHot});
  for (const int64_t pages : {kShared, kCold}) benchmark->Args({4096, pages});
}

BENCHMARK(plain_memcpy)->Apply(lengths);
BENCHMARK_CAPTURE(copy, rep_movsb, CopyRoutine::rep_movsb)->Apply(lengths);
BENCHMARK_CAPTURE(copy, avx2, CopyRoutine::avx2)->Apply(lengths);
BENCHMARK(sum_frame)->Apply(lengths);
BENCHMARK(copy_then_sum)->Apply(lengths);
BENCHMARK_CAPTURE(copy_and_sum, chunks, CopyCrcRoutine::chunks)->Apply(lengths);
BENCHMARK_CAPTURE(copy_and_sum, pclmul, CopyCrcRoutine::pclmul)->Apply(lengths);
BENCHMARK_CAPTURE(copy_and_sum, avx512, CopyCrcRoutine::avx512)->Apply(lengths);
BENCHMARK(sum_then_copy_out)->Apply(lengths);
BENCHMARK(copy_out_beside_sum)->Apply(lengths);

}  // namespace
}  // namespace faultline::odp

BENCHMARK_MAIN();
