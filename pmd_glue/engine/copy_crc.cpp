// SPDX-License-Identifier: BSD-3-Clause
// Measures the limit of the copy: the rate of one CPU with the engine's own copy and CRC routines alone.
#include <chrono>
#include <vector>

#include "odp/copy/tolerant_copy_crc.hpp"
#include "stack/verbs/objects/backend.hpp"

namespace faultline::verbs {

double measure_copy_crc(size_t bytes, unsigned milliseconds) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kPiecesPerLook = 64;  // iterations between two clock reads
  if (bytes == 0) return 0;
  const std::vector<uint8_t> from(bytes, 0x5a);
  std::vector<uint8_t> to(bytes);
  uint32_t crc = 0;
  const auto piece = [&] { static_cast<void>(odp::tolerant_copy_crc(to.data(), from.data(), bytes, crc)); };
  piece();  // touches both buffers before the clock starts
  const auto start = Clock::now();
  const auto end = start + std::chrono::milliseconds(milliseconds);
  auto now = start;
  uint64_t pieces = 0;
  do {
    for (size_t i = 0; i < kPiecesPerLook; ++i) piece();
    pieces += kPiecesPerLook;
    now = Clock::now();
  } while (now < end);
  // A use of the CRC, so that the compiler does not drop the work.
  asm volatile("" : : "r"(crc));
  const auto elapsed_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now - start).count();
  return static_cast<double>(pieces * bytes) / static_cast<double>(elapsed_ns);
}

}  // namespace faultline::verbs
