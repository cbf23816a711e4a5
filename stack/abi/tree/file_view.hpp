// SPDX-License-Identifier: BSD-3-Clause
// Lookup of the program's paths in our devices' trees, at the time of the call.
#pragma once

#include <cerrno>
#include <optional>
#include <string>

#include <sys/stat.h>

#include "stack/abi/tree/device_files.hpp"

namespace faultline::abi {

/// Result of a lookup: an entry of ours, or the fact that our tree has none at that path.
struct Sight {
  std::string path;  ///< normalized, and without the links of our trees
  std::optional<Node> node;
  std::string link;    ///< what the path refers to, if it is a symbolic link; the node is at its end
  int error = ENOENT;  ///< why there is no node
};

/// Returns nullopt if the path belongs to the file system, or if this process has no devices. `directory` is
/// the descriptor that a relative path starts from. Preserves errno.
[[nodiscard]] std::optional<Sight> look_at(int directory, const char* path);

/// Returns the folder of ours that is the program's working directory; "" if it is a kernel directory. A
/// forked child inherits it; a program started by exec does not.
[[nodiscard]] std::string working_directory();
void set_working_directory(const std::string& path);

/// Returns the path that realpath(3) returns.
[[nodiscard]] std::string real_path(const Sight& sight);

/// Returns the stat(2) result of an entry.
[[nodiscard]] struct stat stat_of(const Sight& sight);
/// Returns the lstat(2) result.
[[nodiscard]] struct stat lstat_of(const Sight& sight);

/// Implements access(2). Returns 0, or -1 with errno.
[[nodiscard]] int access_sight(const Sight& sight, int mode);

}  // namespace faultline::abi
