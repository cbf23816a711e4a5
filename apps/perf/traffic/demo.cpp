// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/traffic/demo.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/perf/exchange/listening_line.hpp"

namespace faultline::perf {

namespace {

constexpr std::chrono::seconds kServerStart{30};
// After a successful client the server only has to exit.
constexpr std::chrono::seconds kServerEnd{30};
constexpr std::chrono::milliseconds kLook{10};
constexpr int kNoEnd = 1;

/// A private folder for the memif socket and the two configurations, removed by the destructor.
class ScratchFolder {
 public:
  ScratchFolder() {
    // A socket's path holds 107 characters (unix(7)), so the folder is not below a build folder.
    std::string name = (std::filesystem::temp_directory_path() / "faultline-demo-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw std::runtime_error("cannot make " + name + ": " + std::strerror(errno));
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

void write_config(const std::string& path, const char* role, const std::string& socket, const char* ip) {
  std::ofstream file(path);
  file << "[[device]]\nname = \"faultline0\"\nip = \"" << ip
       << "/24\"\n[device.port]\nkind = \"memif\"\nrole = \"" << role << "\"\nsocket = \"" << socket
       << "\"\n";
  if (!file) throw std::runtime_error("cannot write " + path);
}

/// A child process that runs this program; killed by the destructor if it still runs.
class Child {
 public:
  Child(const std::vector<std::string>& arguments, int stdout_fd) {
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
    if (pid_ != 0) return;
    // Kills the child when this process ends in any way. The parent may have ended before the call.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    if (stdout_fd >= 0) dup2(stdout_fd, STDOUT_FILENO);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return ended(status);
  }
  /// Returns nullopt if the child still runs after `limit`.
  [[nodiscard]] std::optional<int> wait_for(std::chrono::seconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    do {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) return ended(status);
      std::this_thread::sleep_for(kLook);
    } while (std::chrono::steady_clock::now() < deadline);
    return std::nullopt;
  }

 private:
  int ended(int status) {
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  pid_t pid_ = -1;
};

/// Returns the port from the server's listening line. A library loaded with the server may print lines before
/// it; those are copied to stderr.
std::string read_port(int fd) {
  const auto deadline = std::chrono::steady_clock::now() + kServerStart;
  std::string text;
  std::array<char, 128> bytes;
  for (;;) {
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      const std::string line = text.substr(0, end);
      text.erase(0, end + 1);
      if (const auto port = port_of_listening_line(line)) return std::to_string(*port);
      std::fprintf(stderr, "%s\n", line.c_str());
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{fd, POLLIN, 0};
    const int ready = left.count() <= 0 ? 0 : poll(&waiting, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) throw std::runtime_error("the server did not start in time");
    const ssize_t n = read(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw std::runtime_error("the server ended before it listened");
    text.append(bytes.data(), static_cast<size_t>(n));
  }
}

}  // namespace

int run_demo() {
  std::signal(SIGPIPE, SIG_IGN);
  const ScratchFolder folder;
  const std::string socket = folder.file("wire.sock");
  write_config(folder.file("server.toml"), "server", socket, "198.18.0.1");
  write_config(folder.file("client.toml"), "client", socket, "198.18.0.2");
  int said[2];
  // Close-on-exec: if the client inherited an end, the server's end of file would not be seen.
  if (pipe2(said, O_CLOEXEC) != 0) throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
  Child server({"faultline-perf", "--config", folder.file("server.toml"), "--server", "--listen", "127.0.0.1",
                "--port", "0"},
               said[1]);
  close(said[1]);
  const std::string port = read_port(said[0]);
  close(said[0]);  // later output must not block the server
  Child client({"faultline-perf", "--config", folder.file("client.toml"), "--client", "127.0.0.1", "--port",
                port, "--", "--op", "write,read,send", "--size", "64,4k,1m", "--region", "odp", "--verify",
                "--seconds", "1"},
               -1);
  // If the client failed, the server may wait for another one forever: ~Child kills it.
  if (const int client_status = client.wait(); client_status != 0) return client_status;
  const std::optional<int> server_status = server.wait_for(kServerEnd);
  if (!server_status) std::fprintf(stderr, "faultline-perf: the server did not end after its client\n");
  return server_status.value_or(kNoEnd);
}

}  // namespace faultline::perf
