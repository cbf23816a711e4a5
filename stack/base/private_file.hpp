// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace faultline {

/// Opens a file to write, emptied, that its owner alone may read: what goes there has payload. Also where the
/// file was there before, readable by others. Never through a symbolic link, which another user may have left
/// in a shared folder (ELOOP: open(2), O_NOFOLLOW). A descriptor, or -1 with errno.
[[nodiscard]] int open_private_file(const std::string& path);

}  // namespace faultline
