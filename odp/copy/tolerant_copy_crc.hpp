// SPDX-License-Identifier: BSD-3-Clause
// A copy that survives memory that is not there, and the CRC-32 of what it copied, in one pass: the bytes are
// in the registers anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "odp/copy/tolerant_copy.hpp"
#include "odp/regions/crc_beside.hpp"

namespace faultline::odp {

/// As tolerant_copy; `crc` goes on over the bytes copied, in zlib's form (IEEE 802.3, reflected; in and out
/// are the finished value, 0 to begin with). After a short copy it is worth nothing.
[[nodiscard]] size_t tolerant_copy_crc(void* to, const void* from, size_t length_bytes, uint32_t& crc);

/// As tolerant_copy; where it can it takes the sum along, and says so there. After a short copy it has not.
[[nodiscard]] size_t tolerant_copy_beside(void* to, const void* from, size_t length_bytes, CrcBeside& sum);

/// As guarded_copy, with the sum of tolerant_copy_crc. `crc` changes only after a whole copy.
[[nodiscard]] size_t guarded_copy_crc(void* to, const void* from, size_t length_bytes, uint32_t& crc,
                                      const CopyTicket& ticket);
/// As guarded_copy, with the sum of tolerant_copy_beside, which may be done although the copy is not.
[[nodiscard]] size_t guarded_copy_beside(void* to, const void* from, size_t length_bytes, CrcBeside& sum,
                                         const CopyTicket& ticket);

enum class CopyCrcRoutine : uint8_t {
  chunks,  ///< copies a little and sums up what it has written: any CPU
  pclmul,
  avx512  ///< VPCLMULQDQ, 64 bytes a register
};
[[nodiscard]] bool copy_crc_routine_supported(CopyCrcRoutine routine);
/// What tolerant_copy_crc uses on this CPU.
[[nodiscard]] CopyCrcRoutine copy_crc_routine();
/// As tolerant_copy_crc, with a given routine that must be supported.
[[nodiscard]] size_t tolerant_copy_crc_with(CopyCrcRoutine routine, void* to, const void* from,
                                            size_t length_bytes, uint32_t& crc);
[[nodiscard]] size_t tolerant_copy_beside_with(CopyCrcRoutine routine, void* to, const void* from,
                                               size_t length_bytes, CrcBeside& sum);

[[nodiscard]] std::span<const FaultRange> tolerant_copy_crc_ranges();

}  // namespace faultline::odp
