// SPDX-License-Identifier: BSD-3-Clause
// A copy and the CRC of what was copied in two steps, for any CPU: the second step finds a chunk in the L1
// cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <isa-l/crc.h>

#include "odp/copy/restartable_copy.hpp"

namespace faultline::odp {

/// Computes the CRC of the bytes in `to`, the frame, which no other thread can change between copy and CRC.
template <typename Copy>
[[nodiscard]] size_t copy_in_chunks(uint8_t* to, const uint8_t* from, size_t length_bytes, uint32_t& crc,
                                    Copy copy) {
  constexpr size_t kChunkBytes = 1024;  // stays well within the L1 cache until it is read again
  for (size_t done = 0; done < length_bytes;) {
    const size_t chunk = std::min(kChunkBytes, length_bytes - done);
    const size_t copied = copy(to + done, from + done, chunk);
    if (copied == kRevoked) return kRevoked;
    if (copied != chunk) return done + copied;
    crc = crc32_gzip_refl(crc, to + done, chunk);
    done += chunk;
  }
  return length_bytes;
}

}  // namespace faultline::odp
