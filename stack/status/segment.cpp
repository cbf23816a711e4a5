// SPDX-License-Identifier: BSD-3-Clause
#include "stack/status/segment.hpp"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stack/base/runtime_directory.hpp"

namespace faultline::status {

std::string segment_directory(std::string& error) {
  std::string folder = usable_directory({fmt::format("/dev/shm/faultline-{}", geteuid())}, error);
  if (folder.empty()) folder = runtime_directory(error);
  if (folder.empty()) return {};
  return usable_directory({folder + "/status"}, error);
}

ProcessIdentity identity_of(uint32_t pid) {
  ProcessIdentity identity{.pid = pid, .start_ticks = 0, .pid_namespace = 0};
  struct stat status {};
  if (stat("/proc/self/ns/pid", &status) == 0) identity.pid_namespace = status.st_ino;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The program's name may hold spaces and parentheses (proc_pid_stat(5)).
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return identity;
  std::istringstream fields(text.substr(name_end + 1));
  constexpr int kFieldsBefore = 19;  // state, field 3, follows the name; starttime is field 22
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) fields >> skipped;
  fields >> identity.start_ticks;
  return identity;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  file >> text;
  return text;
}

}  // namespace faultline::status
