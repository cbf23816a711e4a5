// SPDX-License-Identifier: BSD-3-Clause
// The library's only logger. It writes to stderr, since stdout belongs to the program, or to a file.
#pragma once

#include <string>
#include <string_view>

#include <spdlog/logger.h>

namespace faultline {

/// Returns the logger. Each line begins with "faultline: ". The level is warn until `[log] level` is read
/// from the configuration.
[[nodiscard]] spdlog::logger& log();

/// Appends all further lines to a file instead of stderr, each by one write(2), so that processes may share
/// the file. `name` is as for log_file_path(). A new file has mode 600. A forked child continues with the
/// same file. A line that cannot be written, or that finds the descriptor closed by the program, is on
/// stderr. Returns "", or what failed and what to do, as one line without a prefix; the log then stays where
/// it was. Calls must not overlap; lines are written by any thread meanwhile.
[[nodiscard]] std::string log_to_file(std::string_view name);

/// Returns `name` with the process ID in place of each `%p`.
[[nodiscard]] std::string log_file_path(std::string_view name, int process_id);

}  // namespace faultline
