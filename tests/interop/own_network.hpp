// SPDX-License-Identifier: BSD-3-Clause
// A network namespace for a test that runs as an ordinary user.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include <sched.h>
#include <unistd.h>

namespace faultline::test {

/// Moves the process into its own user and network namespaces, in which it is root (user_namespaces(7)). Call
/// before the process has threads. Returns false if this host does not allow that, or has no ip(8).
inline bool enter_own_network() {
  const std::string user = std::to_string(geteuid());
  const std::string group = std::to_string(getegid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " + user + " 1";
  std::ofstream("/proc/self/gid_map") << "0 " + group + " 1";
  return std::system("ip link set lo up") == 0;
}

/// Runs ip(8) with these words; ends the test if it fails.
inline void ip(const std::string& words) {
  if (std::system(("ip " + words).c_str()) == 0) return;
  std::fprintf(stderr, "ip %s failed\n", words.c_str());
  std::_Exit(1);
}

}  // namespace faultline::test
