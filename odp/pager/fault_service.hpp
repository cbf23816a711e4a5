// SPDX-License-Identifier: BSD-3-Clause
// One fault request, or one advice, from its admission to its answer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "odp/pager/fault_queue.hpp"
#include "odp/regions/address_range.hpp"
#include "odp/regions/fault_kind.hpp"
#include "odp/regions/memory_access.hpp"
#include "odp/regions/region.hpp"

namespace faultline::odp {

/// The missing pages of a chunk, while they are being made resident.
struct ChunkPlan {
  PageRange pages;  ///< of the region
  uint64_t address = 0;
  uint64_t length_bytes = 0;
  size_t begun = 0;        ///< pages that this plan has marked `faulting`
  size_t chunk_pages = 0;  ///< pages by which the service advances when the plan is done
  bool write = false;
  bool of_file = false;
  bool of_program = false;  ///< the program serves its own userfaultfd there
  FaultKind kind = FaultKind::present;
  int error = 0;

  [[nodiscard]] bool overlaps(const AddressRange& range) const {
    return address < range.end && range.start < address + length_bytes;
  }
  [[nodiscard]] AddressRange range() const { return {address, address + length_bytes}; }
};

/// Whether a thread may take the service.
enum class ServiceState : uint8_t {
  ready,
  waiting,  ///< until any thread returns, or a call of the program ends
  away      ///< a thread populates its plan without the mutex
};

struct FaultService {
  FaultRequest request;
  FaultRings* port = nullptr;    ///< receives the answer; nullptr: advice, or a short fault
  PrefetchWait* wait = nullptr;  ///< of advice whose caller waits
  uint64_t queued_at_ns = 0;
  uint64_t started_at_ns = 0;
  uint64_t pages_done = 0;  ///< of the range, from its start
  uint64_t pages_made_resident = 0;
  FaultKind kind = FaultKind::present;  ///< of its most expensive page
  ChunkPlan plan;
  ServiceState state = ServiceState::ready;
  bool is_advice = false;
  bool abandoned = false;      ///< its port was closed while it was away
  bool answered = false;       ///< its waiter has the answer; the rest is read ahead
  bool failed_before = false;  ///< a chunk has failed once and is tried again
};

}  // namespace faultline::odp
