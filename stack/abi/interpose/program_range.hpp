// SPDX-License-Identifier: BSD-3-Clause
// What the definitions in this room share: how they are exported, and the pages that a call of the program
// concerns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "odp/invalidation/invalidation_monitor.hpp"
#include "odp/regions/page_map.hpp"

/// An exported definition under the C library's own name.
#define FAULTLINE_CALL extern "C" __attribute__((visibility("default")))

namespace faultline::abi {

[[nodiscard]] inline uint64_t number_of(const void* address) {
  return reinterpret_cast<uint64_t>(address);
}
[[nodiscard]] constexpr uint64_t page_start(uint64_t byte) {
  return byte & ~(odp::kPageBytes - 1);
}
/// Returns the page-aligned end of a range that ends at `byte`; 0 on overflow.
[[nodiscard]] constexpr uint64_t page_end(uint64_t byte) {
  return page_start(byte + odp::kPageBytes - 1);
}
/// Returns the page-aligned end of a range, as the kernel computes it; 0 on overflow, which the kernel
/// refuses.
[[nodiscard]] constexpr uint64_t page_end(uint64_t start, size_t length_bytes) {
  return page_end(start + length_bytes);
}
/// Whether the process has a memory domain whose pages a call may concern.
[[nodiscard]] inline bool has_domains() {
  const odp::InvalidationMonitor::CallGuard domains;
  return domains.monitor != nullptr;
}

}  // namespace faultline::abi
