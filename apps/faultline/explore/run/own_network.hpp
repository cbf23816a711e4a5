// SPDX-License-Identifier: BSD-3-Clause
// A network namespace for the runs of one job: programs of runs at the same time listen on the same TCP
// ports.
#pragma once

#include <string>

#include "apps/faultline/explore/run/processes.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::cli {

/// Descriptors of the namespaces: network_namespaces(7). `user` is of the user namespace that owns the
/// network of an ordinary user; root needs none.
struct OwnNetwork {
  UniqueFd user;
  UniqueFd network;

  [[nodiscard]] NetworkFds fds() const { return {user.get(), network.get()}; }
};

/// Makes a network with a loopback interface only. Returns 0 or an errno: EPERM where user namespaces are
/// barred.
[[nodiscard]] int make_own_network(OwnNetwork& network);

}  // namespace faultline::cli
