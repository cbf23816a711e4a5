// SPDX-License-Identifier: BSD-3-Clause
// A sum that is taken while other bytes are copied: a CRC waits for multiplications and a copy for loads and
// stores, so that both together take hardly longer than the longer one.
#pragma once

#include <cstdint>
#include <span>

namespace faultline::odp {

struct CrcBeside {
  std::span<const uint8_t> bytes;
  uint32_t crc = 0;   ///< CRC-32 in zlib's form: of what came before `bytes`, and with them once it is done
  bool done = false;  ///< otherwise whoever wants the sum takes it
};

}  // namespace faultline::odp
