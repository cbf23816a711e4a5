// SPDX-License-Identifier: BSD-3-Clause
// Paths at which Faultline's programs find the library and the switch: relative to its own directory in a
// build folder, or at the installed location.
#pragma once

#include <string>

namespace faultline::run {

/// Returns the path of the running program, and its folder.
[[nodiscard]] std::string own_path();
[[nodiscard]] std::string own_directory();

/// `directory` is the folder of faultline-run, `libdir` the build's libdir below the prefix ("lib64").
/// Returns an absolute path, or "" if there is no readable library.
[[nodiscard]] std::string find_library(const std::string& directory, const std::string& libdir);

/// Returns an absolute path, or "" if there is no executable switch.
[[nodiscard]] std::string find_switch(const std::string& directory);

}  // namespace faultline::run
