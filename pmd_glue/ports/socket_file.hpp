// SPDX-License-Identifier: BSD-3-Clause
// The file of a Unix socket on which a port listens.
#pragma once

#include <string>

#include "pmd_glue/ports/ethdev_port.hpp"

namespace faultline::glue {

/// Checks that this user may create and find files in the folder of `path`.
[[nodiscard]] PortResult check_socket_folder(const std::string& path);

/// Removes the file that a killed server has left, with which bind() would fail. A fault if a server listens
/// there, or if the file is no socket. `type` is the socket's, such as SOCK_STREAM.
[[nodiscard]] PortResult free_socket_path(const std::string& path, int type);

/// Returns 0, or the errno with which connect() fails.
[[nodiscard]] int try_to_connect(const std::string& path, int type);

}  // namespace faultline::glue
