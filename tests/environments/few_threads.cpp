// SPDX-License-Identifier: BSD-3-Clause
// few_threads THREADS: a process that may have THREADS threads opens a device. It does not start, and one
// line says why and what to raise.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include <infiniband/verbs.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stack/include/faultline/faultline.h"

namespace {

constexpr int kSkipped = 77;  // meson takes it for a skipped test

int fail(const char* what) {
  std::fprintf(stderr, "few_threads: FAILED: %s (%s; \"%s\")\n", what, std::strerror(errno),
               faultline_last_error());
  return 1;
}

int try_with(const char* most_threads, const std::string& folder) {
  // Where DPDK makes folders of this user's.
  setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
  std::string path = folder + "/XXXXXX";
  const std::string text =
      "[[device]]\nname = \"faultline0\"\nip = \"198.18.0.1/24\"\n"
      "[device.port]\nkind = \"ring\"\nwire = \"few\"\nside = \"a\"\n";
  const int file = mkstemp(path.data());
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail("the configuration");
  const int configured = faultline_configure(path.c_str());
  unlink(path.c_str());
  int count = 0;
  ibv_device** const list = configured == 0 ? ibv_get_device_list(&count) : nullptr;
  if (list == nullptr || count != 1) return fail("no device");

  const auto threads = static_cast<rlim_t>(std::atoi(most_threads));
  const rlimit limit{threads, threads};
  if (setrlimit(RLIMIT_NPROC, &limit) != 0) return fail("setrlimit");
  // Root has no limit (getrlimit(2)). A user of whom no other process is: the kernel counts by user.
  const auto user = static_cast<uid_t>(200'000 + getpid());
  if (geteuid() == 0 && (setgid(user) != 0 || setuid(user) != 0)) {
    if (errno != EPERM) return fail("setuid");
    std::puts("SKIPPED: root may not become another user here (a container without CAP_SETUID)");
    return kSkipped;
  }

  ibv_context* const context = ibv_open_device(list[0]);
  if (context == nullptr) return fail("ibv_open_device");
  errno = 0;
  if (ibv_alloc_pd(context) != nullptr) return fail("the device started");
  if (errno != ENODEV) return fail("errno");
  const std::string line = faultline_last_error();
  if (line.find("RLIMIT_NPROC") == line.npos || line.find("Success") != line.npos ||
      line.find('\n') != line.npos)
    return fail("the line");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fail("usage: few_threads THREADS");
  std::string folder = "/tmp/faultline-few-threads-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr || chmod(folder.c_str(), 0777) != 0) return fail("the folder");
  // In a child, which becomes another user: what it leaves in the folder is removed as this one.
  const pid_t child = fork();
  if (child == 0) return try_with(argv[1], folder);
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child) return fail("fork");
  std::filesystem::remove_all(folder);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
