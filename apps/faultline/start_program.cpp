// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/start_program.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <spdlog/fmt/fmt.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/faultline/probe.hpp"
#include "apps/run/environment.hpp"
#include "apps/run/find_files.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::cli {
namespace {

constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;
// A device gives up after 20 s if the wire's switch is stopped. The limit is for hangs only.
constexpr auto kProgramPatience = std::chrono::seconds(60);

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

bool open_pipe(Pipe& pipe) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  pipe.read = UniqueFd(ends[0]);
  pipe.write = UniqueFd(ends[1]);
  return true;
}

/// What a program wrote before its end.
struct Output {
  std::string standard;
  std::string error;
  bool has_ended = false;  ///< before the limit of time
};

Output read_all(const UniqueFd& standard, const UniqueFd& error) {
  Output output;
  const auto deadline = std::chrono::steady_clock::now() + kProgramPatience;
  std::array<pollfd, 2> ends{{{standard.get(), POLLIN, 0}, {error.get(), POLLIN, 0}}};
  const std::array<std::string*, 2> texts{&output.standard, &output.error};
  // The switch of a wire, which a probe may start, has neither end: the library gives it none.
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return output;
    if (poll(ends.data(), ends.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) return output;
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      std::array<char, 4096> part;
      const ssize_t length = read(ends[i].fd, part.data(), part.size());
      if (length > 0)
        texts[i]->append(part.data(), static_cast<size_t>(length));
      else if (length == 0 || errno != EINTR)
        ends[i].fd = -1;
    }
  }
  output.has_ended = true;
  return output;
}

std::string last_line_of(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

ProbeReport failure(const std::string& why) {
  ProbeReport report;
  report.error = "faultline: the probe: " + why;
  return report;
}

void set_devices(const DeviceChoice& devices) {
  run::unset_devices();
  if (!devices.config.empty()) setenv("FAULTLINE_CONFIG", devices.config.c_str(), 1);
  if (!devices.wire.empty()) setenv("FAULTLINE_WIRE", devices.wire.c_str(), 1);
  if (!devices.udp.empty()) setenv("FAULTLINE_UDP", devices.udp.c_str(), 1);
}

/// Starts this program as a probe. Returns 0, or an errno.
int spawn_probe(const std::string& program, const char* what, const Pipe& standard, const Pipe& error,
                pid_t& child) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, standard.write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, error.write.get(), STDERR_FILENO);
  std::array<const char*, 4> arguments{program.c_str(), kProbeOption, what, nullptr};
  const int failed = posix_spawn(&child, program.c_str(), &files, nullptr,
                                 const_cast<char* const*>(arguments.data()), environ);
  posix_spawn_file_actions_destroy(&files);
  return failed;
}

ProbeReport report_of(const Output& output, int status) {
  const std::string line = last_line_of(output.error);
  const std::string told = line.empty() ? "" : fmt::format("; its last line: {}", line);
  if (!output.has_ended)
    return failure(fmt::format("no answer in {} s; it was ended{}", kProgramPatience.count(), told));
  if (WIFSIGNALED(status))
    return failure(
        fmt::format("ended by signal {} ({}){}", WTERMSIG(status), strsignal(WTERMSIG(status)), told));
  try {
    return nlohmann::json::parse(output.standard).get<ProbeReport>();
  } catch (const nlohmann::json::exception&) {
    return failure(fmt::format("ended with status {} and no answer{}", WEXITSTATUS(status), told));
  }
}

}  // namespace

int execute(const std::string& name, char** argv) {
  std::string program = run::own_directory() + "/" + name;
  argv[0] = program.data();
  execv(program.c_str(), argv);
  const int error = errno;
  std::fprintf(stderr, "faultline: %s: %s\n", program.c_str(), std::strerror(error));
  return error == ENOENT ? kNotFound : kCannotRun;
}

ProbeReport ask_probe(const DeviceChoice& devices, const char* what) {
  const std::string directory = run::own_directory();
  const std::string library = run::find_library(directory, FAULTLINE_LIBDIR);
  if (library.empty())
    return failure(fmt::format("the library is neither beside {} nor where it is installed", directory));
  set_devices(devices);
  run::set_environment(library, directory, run::own_path());
  Pipe standard;
  Pipe error;
  if (!open_pipe(standard) || !open_pipe(error))
    return failure(fmt::format("pipe2: {}", std::strerror(errno)));
  pid_t child = 0;
  if (const int failed = spawn_probe(run::own_path(), what, standard, error, child); failed != 0)
    return failure(fmt::format("it cannot be started: {}", std::strerror(failed)));
  standard.write.reset();
  error.write.reset();
  const Output output = read_all(standard.read, error.read);
  if (!output.has_ended) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return report_of(output, status);
}

}  // namespace faultline::cli
