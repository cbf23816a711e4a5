// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

namespace faultline {

/// Returns all that a file has, or nullopt with errno. A read may fail after a successful open: those of
/// /proc/PID do if the process has ended in between (ESRCH, proc(5)). std::istreambuf_iterator throws then.
[[nodiscard]] std::optional<std::string> text_of_file(const std::string& path);

}  // namespace faultline
