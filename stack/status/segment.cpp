// SPDX-License-Identifier: BSD-3-Clause
#include "stack/status/segment.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stack/base/process/file_text.hpp"
#include "stack/base/runtime_directory.hpp"

namespace faultline::status {
namespace {

constexpr const char* kFolder = "/status";

std::string shared_memory_folder() {
  return fmt::format("/dev/shm/faultline-{}", geteuid());
}

}  // namespace

std::string segment_directory(std::string& error) {
  const char* const xdg = secure_getenv("XDG_RUNTIME_DIR");
  std::string folder;
  if (xdg == nullptr || xdg[0] != '/') folder = usable_directory({shared_memory_folder()}, error);
  if (folder.empty()) folder = runtime_directory(error);
  if (folder.empty()) return {};
  return usable_directory({folder + kFolder}, error);
}

std::vector<std::string> segment_directories() {
  std::vector<std::string> candidates{fmt::format("/run/user/{}/faultline", geteuid()),
                                      shared_memory_folder(), fmt::format("/tmp/faultline-{}", geteuid())};
  const char* const xdg = secure_getenv("XDG_RUNTIME_DIR");
  if (xdg != nullptr && xdg[0] == '/')
    candidates.insert(candidates.begin(), fmt::format("{}/faultline", xdg));
  std::vector<std::string> found;
  for (const std::string& candidate : candidates) {
    std::string folder = candidate + kFolder;
    struct stat status {};
    const bool is_own = lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                        status.st_uid == geteuid() && (status.st_mode & 077) == 0;
    if (is_own && std::ranges::find(found, folder) == found.end()) found.push_back(std::move(folder));
  }
  return found;
}

ProcessIdentity identity_of(uint32_t pid) {
  ProcessIdentity identity{.pid = pid, .start_ticks = 0, .pid_namespace = 0};
  struct stat status {};
  if (stat("/proc/self/ns/pid", &status) == 0) identity.pid_namespace = status.st_ino;
  const std::string text = text_of_file(fmt::format("/proc/{}/stat", pid)).value_or("");
  // The program's name may hold spaces and parentheses (proc_pid_stat(5)).
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return identity;
  std::istringstream fields(text.substr(name_end + 1));
  // The state, field 3, follows the name; then fields 4 to 19, num_threads, itrealvalue, starttime.
  constexpr int kFieldsBetween = 16;
  std::string state;
  std::string skipped;
  int threads = 0;
  fields >> state;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  fields >> threads >> skipped;
  // A zombie has ended, although its parent has not waited for it. One with threads is a process whose first
  // thread alone has ended.
  if (state == "X" || (state == "Z" && threads <= 1)) return identity;
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
