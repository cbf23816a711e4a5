// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/eal/eal_folder.hpp"

#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include "stack/base/runtime_directory.hpp"

namespace faultline::glue {
namespace {

bool is_usable(const std::string& path) {
  mkdir(path.c_str(), 0700);
  struct stat status {};
  // lstat, since any user could have left a symbolic link in /tmp.
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         access(path.c_str(), R_OK | W_OK | X_OK) == 0;
}

}  // namespace

std::string eal_folder() {
  for (const std::string& own : eal_directories())
    if (is_usable(own.substr(0, own.rfind('/'))) && is_usable(own)) return own;
  return {};
}

}  // namespace faultline::glue

extern "C" {
// EAL's own function (eal_filesystem.h).
int eal_set_runtime_dir(const char* directory);

int __wrap_eal_create_runtime_dir(void);

// Without a directory EAL starts all the same: it has --no-telemetry then, and shares no files with other
// processes.
int __wrap_eal_create_runtime_dir(void) {
  const std::string folder = faultline::glue::eal_folder();
  return folder.empty() ? 0 : eal_set_runtime_dir(folder.c_str());
}
}
