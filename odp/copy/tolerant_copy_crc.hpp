// SPDX-License-Identifier: BSD-3-Clause
// A copy that survives access to absent memory and computes the CRC-32 of the copied bytes in one pass,
// since they are in registers anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "odp/copy/tolerant_copy.hpp"
#include "odp/regions/crc_beside.hpp"

namespace faultline::odp {

/// As tolerant_copy; extends `crc` over the bytes copied, in zlib's form (IEEE 802.3, reflected; in and out
/// are the finished value, initially 0). After a short copy `crc` is undefined.
[[nodiscard]] size_t tolerant_copy_crc(void* to, const void* from, size_t length_bytes, uint32_t& crc);

/// As tolerant_copy; if possible also computes the CRC of `sum`, and then sets sum.done. In that case sum.crc
/// is valid even after a short copy.
[[nodiscard]] size_t tolerant_copy_beside(void* to, const void* from, size_t length_bytes, CrcBeside& sum);

/// As guarded_copy, with the CRC of tolerant_copy_crc. `crc` changes only after a whole copy.
[[nodiscard]] size_t guarded_copy_crc(void* to, const void* from, size_t length_bytes, uint32_t& crc,
                                      const CopyTicket& ticket);
/// As guarded_copy, with the CRC of tolerant_copy_beside, which may be done although the copy is not.
[[nodiscard]] size_t guarded_copy_beside(void* to, const void* from, size_t length_bytes, CrcBeside& sum,
                                         const CopyTicket& ticket);

enum class CopyCrcRoutine : uint8_t {
  chunks,  ///< copies a chunk, then computes the CRC of what it has written: any CPU
  pclmul,
  avx512  ///< VPCLMULQDQ, 64 bytes per register
};
[[nodiscard]] bool copy_crc_routine_supported(CopyCrcRoutine routine);
/// Returns the routine that tolerant_copy_crc uses on this CPU.
[[nodiscard]] CopyCrcRoutine copy_crc_routine();
/// As tolerant_copy_crc, with a given routine, which must be supported.
[[nodiscard]] size_t tolerant_copy_crc_with(CopyCrcRoutine routine, void* to, const void* from,
                                            size_t length_bytes, uint32_t& crc);
[[nodiscard]] size_t tolerant_copy_beside_with(CopyCrcRoutine routine, void* to, const void* from,
                                               size_t length_bytes, CrcBeside& sum);

[[nodiscard]] std::span<const FaultRange> tolerant_copy_crc_ranges();

}  // namespace faultline::odp
