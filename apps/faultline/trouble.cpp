// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/trouble.hpp"

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "stack/base/exit_status.hpp"
#include "stack/base/runtime_directory.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::cli {
namespace {

constexpr int kPatienceSeconds = 5;  ///< a program that a debugger has stopped does not answer

/// Returns one message of a telemetry socket; null if none comes, or if it is no JSON.
nlohmann::json receive(int fd) {
  std::array<char, 65'536> bytes;
  const ssize_t length = recv(fd, bytes.data(), bytes.size(), 0);
  if (length <= 0) return nullptr;
  const std::string text(bytes.data(), static_cast<size_t>(length));
  nlohmann::json parsed = nlohmann::json::parse(text, nullptr, false);
  return parsed.is_object() ? parsed : nlohmann::json(nullptr);
}

/// Connects to the telemetry socket of a process (DPDK, "Telemetry library"). Without waiting: the queue of a
/// stopped process may be full.
UniqueFd connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return UniqueFd();
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return UniqueFd();
  const timeval patience{kPatienceSeconds, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  fcntl(fd.get(), F_SETFL, 0);
  return fd;
}

std::vector<std::string> sockets() {
  std::vector<std::string> found;
  for (const std::string& folder : eal_directories()) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none))
      if (entry.path().filename().string().starts_with("dpdk_telemetry.v2")) found.push_back(entry.path());
  }
  return found;
}

std::string program_of(uint64_t pid) {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", none).filename();
}

/// Returns the answer of the process behind a socket, or nothing if it is another process or does not answer.
std::string ask(const std::string& path, const TroubleOptions& options, uint64_t& pid) {
  const UniqueFd fd = connect_to(path);
  if (!fd) return {};
  const nlohmann::json greeting = receive(fd.get());
  if (!greeting.is_object()) return {};
  pid = greeting.value("pid", uint64_t{0});
  if (options.pid != 0 && pid != options.pid) return {};
  const std::string command = options.ends ? "/faultline/trouble/end" : "/faultline/trouble";
  const std::string request = command + "," + options.name;
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return {};
  const nlohmann::json answer = receive(fd.get());
  if (!answer.is_object() || !answer.contains(command) || !answer[command].is_string()) return {};
  return answer[command];
}

}  // namespace

int run_trouble(const TroubleOptions& options) {
  bool taken = false;
  bool answered = false;
  for (const std::string& path : sockets()) {
    uint64_t pid = 0;
    const std::string answer = ask(path, options, pid);
    if (answer.empty()) continue;
    answered = true;
    taken |= answer == "ok";
    std::fprintf(stderr, "faultline: process %llu (%s): %s\n", static_cast<unsigned long long>(pid),
                 program_of(pid).c_str(), answer.c_str());
  }
  if (taken) return 0;
  if (!answered)
    std::fprintf(stderr,
                 "faultline: trouble: no program of this user%s answers; start it with faultline run "
                 "--trouble, and with the same XDG_RUNTIME_DIR\n",
                 options.pid != 0 ? " has that process number and" : "");
  return kUsageExit;
}

}  // namespace faultline::cli
