// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/context/scatter_gather.hpp"

#include <algorithm>

namespace faultline::transport {

namespace {

/// Calls `copy(sge, va, bytes, done_bytes)` for each piece of [offset, offset + length) of the list.
template <typename Copy>
odp::Outcome walk(std::span<const Sge> sges, uint32_t offset, uint32_t length, SgeSpan& stop, Copy copy) {
  uint32_t done = 0;
  for (uint32_t index = 0; index < sges.size() && done < length; ++index) {
    const Sge& sge = sges[index];
    if (offset >= sge.length_bytes) {
      offset -= sge.length_bytes;
      continue;
    }
    const uint32_t piece = std::min(sge.length_bytes - offset, length - done);
    const odp::Outcome outcome = copy(sge, sge.va + offset, piece, done);
    if (outcome != odp::Outcome::done) {
      stop = {index, sge.va + offset, sge.length_bytes - offset};
      return outcome;
    }
    done += piece;
    offset = 0;
  }
  return done == length ? odp::Outcome::done : odp::Outcome::violation;
}

}  // namespace

odp::Outcome gather_list(odp::MemoryAccess& memory, odp::ProtectionDomain domain, std::span<const Sge> sges,
                         uint32_t offset, std::span<uint8_t> to, SgeSpan& stop, uint32_t* crc) {
  return walk(sges, offset, static_cast<uint32_t>(to.size()), stop,
              [&](const Sge& sge, uint64_t va, uint32_t bytes, uint32_t done) {
                const odp::Target target{sge.lkey, domain, odp::kLocalRead};
                const std::span<uint8_t> piece = to.subspan(done, bytes);
                return crc == nullptr ? memory.read(target, va, piece)
                                      : memory.read_with_crc(target, va, piece, *crc);
              });
}

odp::Outcome scatter_list(odp::MemoryAccess& memory, odp::ProtectionDomain domain, std::span<const Sge> sges,
                          uint32_t offset, std::span<const uint8_t> from, SgeSpan& stop) {
  return walk(sges, offset, static_cast<uint32_t>(from.size()), stop,
              [&](const Sge& sge, uint64_t va, uint32_t bytes, uint32_t done) {
                return memory.write({sge.lkey, domain, odp::kLocalWrite}, va, from.subspan(done, bytes));
              });
}

}  // namespace faultline::transport
