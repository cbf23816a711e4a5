// SPDX-License-Identifier: BSD-3-Clause
// A copy that survives access to absent memory: a fault at one of its instructions ends the copy early
// instead of the process. See fault_handler.hpp for the signal handler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "odp/copy/restartable_copy.hpp"

namespace faultline::odp {

/// Copies `length_bytes` between buffers that do not overlap. Returns `length_bytes`; if a page of either
/// buffer could not be accessed, a lower bound of the bytes copied, which is less. Needs
/// install_fault_handler().
[[nodiscard]] size_t tolerant_copy(void* to, const void* from, size_t length_bytes);

/// As tolerant_copy for memory that a check allowed. Returns kRevoked if the ticket is older than the last
/// revocation or the copy was interrupted before its last store. After a fault the result is 0.
[[nodiscard]] size_t guarded_copy(void* to, const void* from, size_t length_bytes, const CopyTicket& ticket);

enum class CopyRoutine : uint8_t {
  rep_movsb,  ///< any x86-64 CPU
  avx2,
  pairs  ///< any AArch64 CPU: loads and stores pairs of registers
};
[[nodiscard]] bool copy_routine_supported(CopyRoutine routine);
/// As tolerant_copy, with a given routine, which must be supported.
[[nodiscard]] size_t tolerant_copy_with(CopyRoutine routine, void* to, const void* from, size_t length_bytes);

/// As guarded_copy, with a given routine, which must be supported.
[[nodiscard]] size_t guarded_copy_with(CopyRoutine routine, void* to, const void* from, size_t length_bytes,
                                       const CopyTicket& ticket);

/// An entry of the exception table: a fault with its instruction pointer in [begin, end) continues at
/// `fixup`.
struct FaultRange {
  uintptr_t begin;
  uintptr_t end;
  uintptr_t fixup;
};
/// Returns the address of a label of the assembly.
[[nodiscard]] inline uintptr_t address_of(const char* label) {
  return reinterpret_cast<uintptr_t>(label);
}
[[nodiscard]] std::span<const FaultRange> tolerant_copy_ranges();
/// Ranges for faults inside a restartable sequence: the instruction pointer is then already the sequence's
/// abort address.
[[nodiscard]] std::span<const FaultRange> restart_ranges();

}  // namespace faultline::odp
