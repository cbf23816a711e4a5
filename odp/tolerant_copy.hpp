// SPDX-License-Identifier: BSD-3-Clause
// A copy that survives memory that is not there: a fault at one of its instructions ends the copy early
// instead of the process. See fault_handler.hpp for the other half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace faultline::odp {

/// Copies `length_bytes` between buffers that do not overlap. Returns `length_bytes`, or less where a page of
/// either buffer could not be accessed: then a lower bound of the bytes copied. Needs
/// install_fault_handler().
[[nodiscard]] size_t tolerant_copy(void* to, const void* from, size_t length_bytes);

enum class CopyRoutine : uint8_t { rep_movsb, avx2 };
[[nodiscard]] bool copy_routine_supported(CopyRoutine routine);
/// As tolerant_copy, with a given routine that must be supported.
[[nodiscard]] size_t tolerant_copy_with(CopyRoutine routine, void* to, const void* from, size_t length_bytes);

/// An entry of the exception table: a fault with its instruction pointer in [begin, end) continues at
/// `fixup`.
struct FaultRange {
  uintptr_t begin;
  uintptr_t end;
  uintptr_t fixup;
};
[[nodiscard]] std::span<const FaultRange> tolerant_copy_ranges();

}  // namespace faultline::odp
