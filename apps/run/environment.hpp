// SPDX-License-Identifier: BSD-3-Clause
// The environment with which a program runs on the library.
#pragma once

#include <string>

namespace faultline::run {

/// Removes this process's choice of devices, which a program that it starts would inherit.
void unset_devices();

/// Sets LD_PRELOAD, TSAN_OPTIONS, and FAULTLINE_SWITCH if the folder has a switch, for a program that this
/// process executes. `directory` is the folder of the running program, `program` the other one's name or
/// path.
void set_environment(const std::string& library, const std::string& directory, const std::string& program);

}  // namespace faultline::run
