// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace faultline {

/// Opens a file for writing, truncates it, and makes it readable by its owner alone (mode 0600), because it
/// will hold payload. An existing file that others could read becomes private too. Does not follow a symbolic
/// link, which another user may have left in a shared directory (ELOOP: open(2), O_NOFOLLOW). Returns a
/// descriptor, or -1 with errno.
[[nodiscard]] int open_private_file(const std::string& path);

}  // namespace faultline
