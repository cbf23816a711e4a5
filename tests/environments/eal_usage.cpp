// SPDX-License-Identifier: BSD-3-Clause
// EAL prints its usage to stdout for an option that it does not know. A program's stdout must stay the
// program's: a child opens such a device, and what it wrote to stdout is one line of its own.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <infiniband/verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stack/include/faultline/faultline.h"

namespace {

constexpr const char* kOwnLine = "the program's own line\n";

int fail(const std::string& what) {
  std::fprintf(stderr, "eal_usage: FAILED: %s\n", what.c_str());
  return 1;
}

int open_device(const std::string& config) {
  setenv("FAULTLINE_CONFIG", config.c_str(), 1);
  ibv_device** const list = ibv_get_device_list(nullptr);
  ibv_context* const context = list != nullptr && *list != nullptr ? ibv_open_device(*list) : nullptr;
  const bool started = context != nullptr && ibv_alloc_pd(context) != nullptr;
  if (started) return fail("the device started");
  const std::string line = faultline_last_error();
  if (line.find("no-such-option") == line.npos && line.find("did not start") == line.npos)
    return fail("the line: " + line);
  std::fputs(kOwnLine, stdout);
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main() {
  std::string folder = "/tmp/faultline-eal-usage-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return fail("the folder");
  const std::string config = folder + "/device.toml";
  std::ofstream(config) << "[[device]]\nname = \"faultline0\"\nip = \"198.18.0.1/24\"\n"
                           "[device.port]\nkind = \"ring\"\nwire = \"w0\"\nside = \"a\"\n"
                           "[eal]\nextra_args = [\"--no-such-option\"]\n";
  std::array<int, 2> said{};
  if (pipe(said.data()) != 0) return fail("pipe");
  const pid_t child = fork();
  if (child < 0) return fail("fork");
  if (child == 0) {
    dup2(said[1], STDOUT_FILENO);
    close(said[0]);
    close(said[1]);
    std::exit(open_device(config));
  }
  close(said[1]);
  std::string text;
  std::array<char, 4096> bytes{};
  for (ssize_t n = 0; (n = read(said[0], bytes.data(), bytes.size())) > 0;)
    text.append(bytes.data(), static_cast<size_t>(n));
  int status = -1;
  if (waitpid(child, &status, 0) != child) return fail("waitpid");
  std::filesystem::remove_all(folder);
  if (status != 0) return fail("the child");
  return text == kOwnLine ? 0 : fail("on stdout: " + text.substr(0, 300));
}
