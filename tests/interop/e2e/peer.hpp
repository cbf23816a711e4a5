// SPDX-License-Identifier: BSD-3-Clause
// A test of two processes: the program runs itself once more and talks to that peer over a socket.
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/interop/e2e/side.hpp"

namespace faultline::e2e {

/// One end of the socket between the two.
class Exchange {
 public:
  explicit Exchange(int socket) : socket_(socket) {}

  template <typename Value>
  void send(const Value& value) const {
    static_assert(std::is_trivially_copyable_v<Value>);
    if (::send(socket_, &value, sizeof value, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof value))
      fail("exchange", "the other process does not listen");
  }
  template <typename Value>
  [[nodiscard]] bool receive(Value& value) const {
    static_assert(std::is_trivially_copyable_v<Value>);
    return recv(socket_, &value, sizeof value, MSG_WAITALL) == static_cast<ssize_t>(sizeof value);
  }
  enum class Arrival : uint8_t { nothing, byte, end };
  /// Without waiting.
  [[nodiscard]] Arrival try_receive(char& byte) const {
    const ssize_t count = recv(socket_, &byte, 1, MSG_DONTWAIT);
    if (count == 1) return Arrival::byte;
    return count == 0 || (errno != EAGAIN && errno != EINTR) ? Arrival::end : Arrival::nothing;
  }

 private:
  int socket_;
};

/// This program run once more, with `arguments` and the number of its socket behind them. Ends with its
/// parent.
class Peer {
 public:
  /// `prepare` runs in the new process, before the program.
  template <typename Prepare>
  Peer(std::vector<std::string> arguments, Prepare prepare) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) fail("peer", "socketpair");
    socket_ = sockets[0];
    // Kept across exec, unlike its twin.
    const int theirs = dup(sockets[1]);
    arguments.insert(arguments.begin(), std::filesystem::read_symlink("/proc/self/exe"));
    arguments.push_back(std::to_string(theirs));
    std::vector<char*> words;
    words.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0) fail("peer", "fork");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prepare();
      execv(words[0], words.data());
      _exit(127);
    }
    close(theirs);
    close(sockets[1]);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] Exchange exchange() const { return Exchange(socket_); }
  [[nodiscard]] int socket() const { return socket_; }
  /// A value that it sends; its end instead is the test's.
  template <typename Value>
  [[nodiscard]] Value await() {
    Value value;
    if (!exchange().receive(value)) fail_with_it();
    return value;
  }
  [[nodiscard]] bool has_ended() {
    if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }
  [[noreturn]] void fail_with_it() {
    for (int i = 0; i < 200 && !has_ended(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::string how = "closed its socket";
    if (ended_ && WIFSIGNALED(status_)) how = "was killed by signal " + std::to_string(WTERMSIG(status_));
    if (ended_ && WIFEXITED(status_)) how = "ended with status " + std::to_string(WEXITSTATUS(status_));
    if (why_) how += why_();
    std::fprintf(stderr, "peer: %s\n", how.c_str());
    std::_Exit(1);
  }
  /// What is told beside, if it ends too soon.
  void explain(std::function<std::string()> why) { why_ = std::move(why); }
  /// Waits for its end, which has to be a good one.
  void finish() {
    if (!ended_ && waitpid(pid_, &status_, 0) != pid_) fail("peer", "waitpid");
    ended_ = true;
    if (!WIFEXITED(status_) || WEXITSTATUS(status_) != 0) fail_with_it();
    close(socket_);
  }

 private:
  int socket_ = -1;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
  std::function<std::string()> why_;
};

inline void wait_for_link(const Side& side, const char* who) {
  await_true(who, "the link stays down", [&side] {
    faultline_progress(side.context);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ibv_port_attr port{};
    return ibv_query_port(side.context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE;
  });
}

}  // namespace faultline::e2e
