// SPDX-License-Identifier: BSD-3-Clause
// The directory in which one user's processes find each other: $XDG_RUNTIME_DIR/faultline; without that
// variable /tmp/faultline-UID; if that cannot be had, /run/user/UID/faultline, then /dev/shm/faultline-UID.
#pragma once

#include <string>
#include <vector>

namespace faultline {

/// Returns the directory and creates it if it is missing; only this user has access. Returns "" and one line
/// in `error` if the directory cannot be trusted.
[[nodiscard]] std::string runtime_directory(std::string& error);

/// Returns the first candidate that only this user can access or that can be made so. Errors as
/// runtime_directory().
[[nodiscard]] std::string usable_directory(const std::vector<std::string>& candidates, std::string& error);

/// Returns the directories in which this user's programs may have DPDK's runtime files, the best first.
/// DPDK's tools search them too, except /tmp: the first user's directory there is closed to all others.
[[nodiscard]] std::vector<std::string> eal_directories();

}  // namespace faultline
