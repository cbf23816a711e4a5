// SPDX-License-Identifier: BSD-3-Clause
// Which paths of the program are our devices' own, and what is there at this moment.
#pragma once

#include <optional>
#include <string>

#include <sys/stat.h>

#include "stack/abi/tree/device_files.hpp"

namespace faultline::abi {

/// An entry of ours, or the knowledge that there is none at that path.
struct Sight {
  std::string path;  ///< normalized
  std::optional<Node> node;
};

/// Nothing where the path is the file system's, and where this process has no devices. `directory` is the
/// descriptor that a relative path starts from. Leaves errno alone.
[[nodiscard]] std::optional<Sight> look_at(int directory, const char* path);

/// The folder of ours that is the program's working directory; "" where it is the kernel's. A forked child
/// starts with its parent's; a program that is started by exec does not know of it.
[[nodiscard]] std::string working_directory();
void set_working_directory(const std::string& path);

/// What stat tells of it.
[[nodiscard]] struct stat stat_of(const Sight& sight);

/// access(2): 0, or -1 with errno.
[[nodiscard]] int access_sight(const Sight& sight, int mode);

}  // namespace faultline::abi
