// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/tolerant_atomic.hpp"

#include "odp/copy/restartable_copy.hpp"

// The operations, and their ranges, are assembly of the CPU's folder.
extern "C" {
using faultline::odp::CopyTicket;
using faultline::odp::FaultRange;
__attribute__((visibility("hidden"))) int faultline_odp_guarded_swap(void*, uint64_t, uint64_t, uint64_t*,
                                                                     const CopyTicket*);
__attribute__((visibility("hidden"))) int faultline_odp_guarded_add(void*, uint64_t, uint64_t*,
                                                                    const CopyTicket*);
__attribute__((visibility("hidden"))) int faultline_odp_guarded_store(void*, uint64_t, uint64_t*,
                                                                      const CopyTicket*);
__attribute__((visibility("hidden"))) int faultline_odp_atomic_swap(void*, uint64_t, uint64_t, uint64_t*);
__attribute__((visibility("hidden"))) int faultline_odp_atomic_add(void*, uint64_t, uint64_t*);
__attribute__((visibility("hidden"))) int faultline_odp_atomic_store(void*, uint64_t, uint64_t*);
__attribute__((visibility("hidden"))) extern const FaultRange faultline_odp_atomic_ranges[6];
}

namespace faultline::odp {

bool tolerant_atomic(void* at, const AtomicRequest& request, uint64_t& original) {
  switch (request.op) {
    case AtomicOp::compare_swap:
      return faultline_odp_atomic_swap(at, request.compare, request.operand, &original) != 0;
    case AtomicOp::fetch_add:
      return faultline_odp_atomic_add(at, request.operand, &original) != 0;
    case AtomicOp::store:
      return faultline_odp_atomic_store(at, request.operand, &original) != 0;
  }
  return false;
}

GuardedAtomic guarded_atomic(void* at, const AtomicRequest& request, uint64_t& original,
                             const CopyTicket& ticket) {
  int result = 0;
  switch (request.op) {
    case AtomicOp::compare_swap:
      result = faultline_odp_guarded_swap(at, request.compare, request.operand, &original, &ticket);
      break;
    case AtomicOp::fetch_add:
      result = faultline_odp_guarded_add(at, request.operand, &original, &ticket);
      break;
    case AtomicOp::store:
      result = faultline_odp_guarded_store(at, request.operand, &original, &ticket);
      break;
  }
  return result == 1 ? GuardedAtomic::done : result == 0 ? GuardedAtomic::fault : GuardedAtomic::revoked;
}

std::span<const FaultRange> tolerant_atomic_ranges() {
  return faultline_odp_atomic_ranges;
}

}  // namespace faultline::odp
