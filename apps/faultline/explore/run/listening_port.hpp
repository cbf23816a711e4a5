// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

namespace faultline::cli {

/// Returns whether a socket listens on the TCP port in the network namespace of a process.
[[nodiscard]] bool listens(pid_t process, unsigned port);

}  // namespace faultline::cli
