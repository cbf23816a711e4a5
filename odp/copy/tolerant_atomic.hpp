// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations that survive access to absent memory, as tolerant_copy does.
#pragma once

#include <cstdint>
#include <span>

#include "odp/copy/tolerant_copy.hpp"
#include "odp/regions/memory_access.hpp"

namespace faultline::odp {

/// Executes the operation on the eight aligned bytes at `at` with one locked instruction. Returns false and
/// changes nothing if the page could not be accessed. Needs install_fault_handler().
[[nodiscard]] bool tolerant_atomic(void* at, const AtomicRequest& request, uint64_t& original);

enum class GuardedAtomic : uint8_t { done, fault, revoked };
/// As tolerant_atomic for memory that a check allowed; revoked: not executed, as guarded_copy's kRevoked.
[[nodiscard]] GuardedAtomic guarded_atomic(void* at, const AtomicRequest& request, uint64_t& original,
                                           const CopyTicket& ticket);

[[nodiscard]] std::span<const FaultRange> tolerant_atomic_ranges();

}  // namespace faultline::odp
