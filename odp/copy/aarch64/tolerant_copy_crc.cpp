// SPDX-License-Identifier: BSD-3-Clause
// The library's CRC multiplies without carries (PMULL), several blocks at a time. A loop of CRC32
// instructions, each of which waits for the one before, would be slower than the two steps.
#include "odp/copy/tolerant_copy_crc.hpp"

#include "odp/copy/copy_in_chunks.hpp"
#include "odp/copy/restartable_copy.hpp"
#include "odp/copy/tolerant_copy.hpp"

namespace faultline::odp {

size_t tolerant_copy_crc(void* to, const void* from, size_t length_bytes, uint32_t& crc) {
  return copy_in_chunks(static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), length_bytes, crc,
                        tolerant_copy);
}

size_t guarded_copy_crc(void* to, const void* from, size_t length_bytes, uint32_t& crc,
                        const CopyTicket& ticket) {
  uint32_t sum = crc;  // a repeated copy must begin with the same CRC
  const size_t copied = copy_in_chunks(
      static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), length_bytes, sum,
      [&](void* out, const void* in, size_t bytes) { return guarded_copy(out, in, bytes, ticket); });
  if (copied == length_bytes) crc = sum;
  return copied;
}

size_t tolerant_copy_beside(void* to, const void* from, size_t length_bytes, CrcBeside& /*sum*/) {
  return tolerant_copy(to, from, length_bytes);
}

size_t guarded_copy_beside(void* to, const void* from, size_t length_bytes, CrcBeside& /*sum*/,
                           const CopyTicket& ticket) {
  return guarded_copy(to, from, length_bytes, ticket);
}

bool copy_crc_routine_supported(CopyCrcRoutine routine) {
  return routine == CopyCrcRoutine::chunks;
}

CopyCrcRoutine copy_crc_routine() {
  return CopyCrcRoutine::chunks;
}

size_t tolerant_copy_crc_with(CopyCrcRoutine /*routine*/, void* to, const void* from, size_t length_bytes,
                              uint32_t& crc) {
  return tolerant_copy_crc(to, from, length_bytes, crc);
}

size_t tolerant_copy_beside_with(CopyCrcRoutine /*routine*/, void* to, const void* from, size_t length_bytes,
                                 CrcBeside& sum) {
  return tolerant_copy_beside(to, from, length_bytes, sum);
}

std::span<const FaultRange> tolerant_copy_crc_ranges() {
  return {};
}

}  // namespace faultline::odp
