// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace faultline::odp {

/// What the kernel does to make a page resident, in ascending order of cost. A range has the kind of its
/// most expensive page.
enum class FaultKind : uint8_t {
  present,    ///< mapped already: only this layer did not have it, or no longer had it
  minor,      ///< fresh memory, or a page of the page cache
  zero_page,  ///< fresh memory that is only read
  huge,       ///< a huge page
  file,       ///< read from a file
  swap        ///< read from swap
};
inline constexpr size_t kFaultKinds = 6;

[[nodiscard]] constexpr std::string_view name_of(FaultKind kind) {
  constexpr std::array<std::string_view, kFaultKinds> kNames{"present", "minor", "zero_page",
                                                             "huge",    "file",  "swap"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace faultline::odp
