// SPDX-License-Identifier: BSD-3-Clause
// The devices of running programs as a folder with the shape of /sys, for readers that take its path:
// node_exporter's
// --path.sysfs.
#pragma once

#include <string>

namespace faultline::cli {

/// Writes the folder "class" below `folder`. Each file is replaced as a whole; devices that no program has
/// any more are removed. Counters are the sums over the programs that have a device of a name. Returns false
/// with one line in `error` if something cannot be written.
[[nodiscard]] bool write_sysfs_tree(const std::string& folder, std::string& error);

}  // namespace faultline::cli
