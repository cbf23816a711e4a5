// SPDX-License-Identifier: BSD-3-Clause
// A CRC that is computed while other bytes are copied. A CRC waits for multiplications and a copy for loads
// and stores, so both together take hardly longer than the longer one.
#pragma once

#include <cstdint>
#include <span>

namespace faultline::odp {

struct CrcBeside {
  std::span<const uint8_t> bytes;
  uint32_t crc = 0;   ///< CRC-32 in zlib's form: of the bytes before `bytes`, or including `bytes` if `done`
  bool done = false;  ///< if false, the caller computes the CRC itself
};

}  // namespace faultline::odp
