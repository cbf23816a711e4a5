// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/wires/switch_start.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <spdlog/fmt/fmt.h>
#include <sys/auxv.h>
#include <sys/wait.h>

namespace faultline::glue {
namespace {

constexpr int kListenerFd = 3;

/// Returns whether this program has rights that its caller lacks (setuid, file capabilities). Then it must
/// not run what the caller's environment names.
bool has_raised_rights() {
  return getauxval(AT_SECURE) != 0;
}

/// Returns the path of faultline-switch. It searches the directories of the build or the installation,
/// relative to this library or program, and then PATH.
std::string switch_program() {
  if (const char* told = secure_getenv("FAULTLINE_SWITCH")) return told;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&switch_program), &self) != 0 && self.dli_fname != nullptr) {
    const std::string file = self.dli_fname;
    // A relative name depends on the caller's working directory.
    if (has_raised_rights() && !file.starts_with('/')) return {};
    const size_t slash = file.rfind('/');
    const std::string directory = slash == std::string::npos ? "." : file.substr(0, slash);
    for (const char* place :
         {"", "/apps", "/../apps", "/../../apps", "/../bin", "/../../bin", "/../../../bin"}) {
      std::string program = directory + place + "/faultline-switch";
      if (access(program.c_str(), X_OK) == 0) return program;
    }
  }
  // Found by a search of PATH.
  return has_raised_rights() ? std::string() : "faultline-switch";
}

// Starts the switch as a daemon. It inherits no terminal, descriptors, signal settings or preloads of the
// program.
int spawn_switch(const std::string& wire, const SwitchPlace& place, const UniqueFd& listener,
                 bool after_death) {
  const std::string program = switch_program();
  if (program.empty()) return ENOENT;
  const std::string fd = std::to_string(kListenerFd);
  std::vector<const char*> arguments{program.c_str(), "--wire", wire.c_str(), "--listener", fd.c_str()};
  if (after_death) arguments.push_back("--recover");
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (has_raised_rights()) break;
    if (!text.starts_with("LD_PRELOAD=") && !text.starts_with("FAULTLINE_")) environment.push_back(*variable);
  }
  environment.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  // Duplicated above 3 first, or the actions below would close it before they duplicate it.
  const UniqueFd high(fcntl(listener.get(), F_DUPFD_CLOEXEC, kListenerFd + 1));
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, place.log_file.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&files, high.get(), kListenerFd);
  posix_spawn_file_actions_addclosefrom_np(&files, kListenerFd + 1);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  // A process group, not a new session: Linux schedules sessions as groups (sched_autogroup), and a session
  // that mostly sleeps can wait for a second on a busy machine.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  pid_t child = 0;
  const int error = posix_spawnp(&child, program.c_str(), &files, &attributes,
                                 const_cast<char* const*>(arguments.data()), environment.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return error;
  // The child forks and exits at once; the program does not wait for the grandchild.
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
  return 0;
}

std::string program_for_error() {
  const std::string program = switch_program();
  return program.empty() ? "faultline-switch, which is not beside the library" : program;
}

}  // namespace

UniqueFd reach_switch(const std::string& wire, const SwitchPlace& place, SteadyTime deadline, bool& started,
                      std::string& error) {
  const auto refuse = [&](const std::string& message) -> UniqueFd {
    const int reason = errno;
    error = fmt::format("faultline: wire {}: {}", wire, message);
    errno = reason;
    return {};
  };
  const auto connect = [&] { return connect_to_wire(place, deadline); };
  const auto is_there = [] { return errno != ENOENT && errno != ECONNREFUSED; };
  const auto refuse_to_connect = [&] {
    if (errno == ETIMEDOUT)
      return refuse(fmt::format("its switch accepts nobody; {}", advice_on(switch_process(place))));
    return refuse(fmt::format("cannot connect to {}: {}{}", place.control_socket, std::strerror(errno),
                              errno == EMFILE ? "; raise ulimit -n" : ""));
  };
  // Without the lock, so that many clients can wait for a slow switch without excluding each other.
  if (UniqueFd connection = connect()) return connection;
  if (is_there()) return refuse_to_connect();
  const UniqueFd lock = lock_wire(place, deadline);
  if (!lock && errno == ETIMEDOUT)
    return refuse(
        fmt::format("another process has {} locked; {}", place.lock_file, advice_on(lock_process(place))));
  if (!lock) return refuse(fmt::format("cannot lock {}: {}", place.lock_file, std::strerror(errno)));
  // Another process may have started a switch meanwhile.
  if (UniqueFd connection = connect()) return connection;
  if (is_there()) return refuse_to_connect();
  if (needs_uplink(place)) {
    errno = ENETDOWN;
    return refuse(fmt::format(
        "its switch, which had an uplink, has ended; start it again (faultline-switch --wire {}, with its "
        "--config or --uplink), or remove {} for a wire without",
        wire, place.uplink_file));
  }
  bool died = false;
  started = true;
  const UniqueFd listener = listen_on_wire(place, died);
  if (!listener)
    return refuse(fmt::format("cannot listen on {}: {}", place.control_socket, std::strerror(errno)));
  if (const int failed = spawn_switch(wire, place, listener, died); failed != 0) {
    errno = failed;
    return refuse(fmt::format("cannot start {}: {}", program_for_error(), std::strerror(failed)));
  }
  UniqueFd connection = connect();
  return connection ? std::move(connection) : refuse_to_connect();
}

std::string last_log_line(const SwitchPlace& place) {
  std::ifstream log(place.log_file);
  std::string line;
  std::string last = fmt::format("{} says nothing", place.log_file);
  while (std::getline(log, line))
    if (!line.empty()) last = line;
  return last;
}

}  // namespace faultline::glue
