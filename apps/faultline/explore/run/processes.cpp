// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/run/processes.hpp"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stack/base/process/file_text.hpp"

namespace faultline::cli {
namespace {

constexpr int kNotFound = 127;

/// Leaders that a Process has yet to wait for. The mutex is held from fork(2) to the entry in the set, so
/// that end_orphans() takes no leader for an orphan.
std::mutex leaders_mutex;
std::set<pid_t> leaders;

/// What the child needs, made before fork(2): other threads may hold the allocator's lock then.
struct Prepared {
  std::vector<char*> words;
  std::vector<char*> environment;
  pid_t parent = 0;
};

Prepared prepare(const StartRequest& request) {
  Prepared prepared;
  const auto fill = [](std::vector<char*>& to, const std::vector<std::string>& from) {
    for (const std::string& text : from) to.push_back(const_cast<char*>(text.c_str()));
    to.push_back(nullptr);
  };
  fill(prepared.words, request.words);
  fill(prepared.environment, request.environment);
  prepared.parent = getpid();
  return prepared;
}

void complain(const char* what, int error) {
  for (const char* const part :
       {"faultline explore: ", what, ": ", static_cast<const char*>(std::strerror(error)), "\n"})
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) return;
}

/// Between fork(2) and execve(2): calls that are safe in a signal handler alone.
[[noreturn]] void become(const StartRequest& request, const Prepared& prepared) {
  setpgid(0, 0);
  const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int out = open(request.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  const int error = open(request.errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (in < 0 || out < 0 || error < 0) _exit(kNotFound);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  if ((request.network.user >= 0 && setns(request.network.user, CLONE_NEWUSER) != 0) ||
      (request.network.network >= 0 && setns(request.network.network, CLONE_NEWNET) != 0)) {
    complain("setns", errno);
    _exit(kNotFound);
  }
  // After setns(2), whose change of rights clears it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (getppid() != prepared.parent) _exit(kNotFound);
  execvpe(prepared.words[0], prepared.words.data(), prepared.environment.data());
  complain(prepared.words[0], errno);
  _exit(kNotFound);
}

bool is_readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, 0) == 1;
}

struct Stat {
  char state = 0;
  pid_t parent = 0;
};

/// Of /proc/PID/stat: proc(5). The name, in parentheses, may have any character.
Stat stat_of(const std::string& process) {
  const std::string text = text_of_file("/proc/" + process + "/stat").value_or("");
  const size_t after_name = text.rfind(')');
  if (after_name == std::string::npos || after_name + 4 >= text.size()) return {};
  Stat stat{text[after_name + 2], 0};
  std::from_chars(text.data() + after_name + 4, text.data() + text.size(), stat.parent);
  return stat;
}

bool has_variable(const std::string& process, const std::string& variable) {
  const std::string environment = text_of_file("/proc/" + process + "/environ").value_or("");
  const size_t at = environment.find(variable + '\0');
  return at != std::string::npos && (at == 0 || environment[at - 1] == '\0');
}

/// Ends adopted processes with the variable, and waits for those that have ended. Returns whether there was
/// one.
bool end_adopted(const std::string& variable) {
  const std::lock_guard lock(leaders_mutex);
  const pid_t own = getpid();
  bool found = false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    pid_t id = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), id).ec != std::errc() || id <= 0) continue;
    const Stat stat = stat_of(name);
    if (stat.parent != own || leaders.contains(id)) continue;
    // A process that has ended has no environment.
    if (stat.state != 'Z') {
      if (!has_variable(name, variable)) continue;
      kill(id, SIGKILL);
    }
    found = true;
    waitpid(id, nullptr, stat.state == 'Z' ? WNOHANG : 0);
  }
  return found;
}

}  // namespace

Process::Process(Process&& other) noexcept {
  *this = std::move(other);
}

Process& Process::operator=(Process&& other) noexcept {
  if (this == &other) return *this;
  end();
  id_ = std::exchange(other.id_, 0);
  status_ = std::exchange(other.status_, 0);
  ended_ = std::move(other.ended_);
  return *this;
}

int Process::start(const StartRequest& request) {
  end();
  const Prepared prepared = prepare(request);
  const std::lock_guard lock(leaders_mutex);
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) become(request, prepared);
  // The child does the same: whichever is first.
  setpgid(child, child);
  id_ = child;
  leaders.insert(child);
  ended_ = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  return ended_.get() < 0 ? errno : 0;
}

bool Process::has_ended() const {
  return ended_.get() >= 0 && is_readable(ended_.get());
}

void Process::send(int signal) const {
  if (id_ > 0) kill(-id_, signal);
}

int Process::end() {
  if (id_ == 0) return status_;
  kill(-id_, SIGKILL);
  const std::lock_guard lock(leaders_mutex);
  while (waitpid(id_, &status_, 0) < 0 && errno == EINTR) continue;
  leaders.erase(id_);
  ended_.reset();
  id_ = 0;
  return status_;
}

void adopt_orphans() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void end_orphans(const std::string& variable) {
  // The children of a process that is ended are adopted in turn.
  while (end_adopted(variable)) continue;
}

}  // namespace faultline::cli
