// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/demo.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace faultline::perf {

namespace {

constexpr int kServerStartMs = 30'000;

/// A private folder for the memif socket and the two configurations, gone at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    // A socket's path holds 107 characters (unix(7)): not below a build folder.
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

/// A child of this program; ended with us if it has not ended before.
class Child {
 public:
  Child(const std::vector<std::string>& arguments, int stdout_fd) {
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
    if (pid_ != 0) return;
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
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

/// The port that the server says it listens on.
std::string read_port(int fd) {
  std::string said;
  std::array<char, 128> bytes;
  while (said.find('\n') == std::string::npos) {
    pollfd waiting{fd, POLLIN, 0};
    if (poll(&waiting, 1, kServerStartMs) <= 0) throw std::runtime_error("the server did not start in time");
    const ssize_t n = read(fd, bytes.data(), bytes.size());
    if (n <= 0) throw std::runtime_error("the server ended before it listened");
    said.append(bytes.data(), static_cast<size_t>(n));
  }
  const size_t digits = said.find_first_of("0123456789");
  if (digits == std::string::npos) throw std::runtime_error("the server said: " + said);
  return std::to_string(std::strtoul(said.c_str() + digits, nullptr, 10));
}

}  // namespace

int run_demo() {
  std::signal(SIGPIPE, SIG_IGN);
  const ScratchFolder folder;
  const std::string socket = folder.file("wire.sock");
  write_config(folder.file("server.toml"), "server", socket, "198.18.0.1");
  write_config(folder.file("client.toml"), "client", socket, "198.18.0.2");
  int said[2];
  if (pipe(said) != 0) throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
  Child server({"faultline-perf", "--config", folder.file("server.toml"), "--server", "--listen", "127.0.0.1",
                "--port", "0"},
               said[1]);
  close(said[1]);
  const std::string port = read_port(said[0]);
  Child client({"faultline-perf", "--config", folder.file("client.toml"), "--client", "127.0.0.1", "--port",
                port, "--", "--op", "write,read,send", "--size", "64,4k,1m", "--region", "odp", "--verify",
                "--seconds", "1"},
               -1);
  const int client_status = client.wait();
  const int server_status = server.wait();
  close(said[0]);
  return client_status != 0 ? client_status : server_status;
}

}  // namespace faultline::perf
