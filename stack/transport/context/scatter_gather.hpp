// SPDX-License-Identifier: BSD-3-Clause
// Copies between frames and scatter/gather lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "odp/regions/memory_access.hpp"
#include "stack/transport/qp/work_queue.hpp"

namespace faultline::transport {

/// Position in a scatter/gather list at which a copy stopped.
struct SgeSpan {
  uint32_t index = 0;       ///< element at which the copy stopped
  uint64_t va = 0;          ///< address there
  uint32_t left_bytes = 0;  ///< bytes of that element from there
};

/// General case: lists of any length. The inline functions below handle the usual single element.
[[nodiscard]] odp::Outcome gather_list(odp::MemoryAccess& memory, odp::ProtectionDomain domain,
                                       std::span<const Sge> sges, uint32_t offset, std::span<uint8_t> to,
                                       SgeSpan& stop, uint32_t* crc);
[[nodiscard]] odp::Outcome scatter_list(odp::MemoryAccess& memory, odp::ProtectionDomain domain,
                                        std::span<const Sge> sges, uint32_t offset,
                                        std::span<const uint8_t> from, SgeSpan& stop);

/// True if the list has one element and it contains all the bytes.
[[nodiscard]] inline bool is_plain(std::span<const Sge> sges, uint32_t offset, size_t bytes) {
  return sges.size() == 1 && offset <= sges[0].length_bytes && bytes <= sges[0].length_bytes - offset;
}

/// Copies `to.size()` bytes at message offset `offset` out of the list. On a miss or violation, `stop` is the
/// position. A non-null `crc` is updated over the copied bytes in the same pass
/// (odp::MemoryAccess::read_with_crc).
[[nodiscard]] inline odp::Outcome gather(odp::MemoryAccess& memory, odp::ProtectionDomain domain,
                                         std::span<const Sge> sges, uint32_t offset, std::span<uint8_t> to,
                                         SgeSpan& stop, uint32_t* crc = nullptr) {
  if (!is_plain(sges, offset, to.size())) return gather_list(memory, domain, sges, offset, to, stop, crc);
  const Sge& sge = sges[0];
  const odp::Target target{sge.lkey, domain, odp::kLocalRead};
  const odp::Outcome outcome = crc == nullptr ? memory.read(target, sge.va + offset, to)
                                              : memory.read_with_crc(target, sge.va + offset, to, *crc);
  if (outcome != odp::Outcome::done) stop = {0, sge.va + offset, sge.length_bytes - offset};
  return outcome;
}
/// Copies `from` into the list at message offset `offset`.
[[nodiscard]] inline odp::Outcome scatter(odp::MemoryAccess& memory, odp::ProtectionDomain domain,
                                          std::span<const Sge> sges, uint32_t offset,
                                          std::span<const uint8_t> from, SgeSpan& stop) {
  if (!is_plain(sges, offset, from.size())) return scatter_list(memory, domain, sges, offset, from, stop);
  const Sge& sge = sges[0];
  const odp::Outcome outcome = memory.write({sge.lkey, domain, odp::kLocalWrite}, sge.va + offset, from);
  if (outcome != odp::Outcome::done) stop = {0, sge.va + offset, sge.length_bytes - offset};
  return outcome;
}

}  // namespace faultline::transport
