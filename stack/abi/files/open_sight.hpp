// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "stack/abi/tree/file_view.hpp"

namespace faultline::abi {

/// Opens an entry of the device tree as open(2) would. Returns a descriptor, or -1 with errno.
[[nodiscard]] int open_sight(const Sight& sight, int flags);

}  // namespace faultline::abi
