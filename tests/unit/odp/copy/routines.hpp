// SPDX-License-Identifier: BSD-3-Clause
// The copy routines of this kind of CPU, for tests of each.
#pragma once

#include <array>

#include "odp/copy/tolerant_copy.hpp"
#include "odp/copy/tolerant_copy_crc.hpp"

namespace faultline::odp::test {

#if defined(__x86_64__)
inline constexpr std::array kCopyRoutines{CopyRoutine::rep_movsb, CopyRoutine::avx2};
inline constexpr std::array kCopyCrcRoutines{CopyCrcRoutine::chunks, CopyCrcRoutine::pclmul,
                                             CopyCrcRoutine::avx512};
#else
inline constexpr std::array kCopyRoutines{CopyRoutine::pairs};
inline constexpr std::array kCopyCrcRoutines{CopyCrcRoutine::chunks};
#endif

inline const char* name_of(CopyRoutine routine) {
  switch (routine) {
    case CopyRoutine::rep_movsb:
      return "rep_movsb";
    case CopyRoutine::avx2:
      return "avx2";
    case CopyRoutine::pairs:
      return "pairs";
  }
  return "none";
}

}  // namespace faultline::odp::test
