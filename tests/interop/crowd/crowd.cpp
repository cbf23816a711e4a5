// SPDX-License-Identifier: BSD-3-Clause
// N processes on one wire, each connected to each by an RC QP. In every lap each process sends each other one
// a SEND of 64 bytes and a WRITE of 16 KiB with immediate. Every byte depends on sender, receiver and lap,
// and the receiver compares it.
//   crowd PROCESSES LAPS LIMIT_S [hold]
// Prints one line of JSON when all have received all. With `hold` the processes then stay, idle and
// connected, until standard input ends. Plain verbs: it runs on the system's libibverbs.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "member.hpp"

namespace faultline::crowd {
namespace {

constexpr uint32_t kMostProcesses = 1000;
constexpr const char* kUsage = "usage: crowd PROCESSES LAPS LIMIT_S [hold]";

uint32_t number(const char* text, const char* what, uint32_t least, uint32_t most) {
  const std::string_view word = text;
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < least || value > most) {
    std::fprintf(stderr, "crowd: %s must be a number from %u to %u, not %s; %s\n", what, least, most, text,
                 kUsage);
    std::exit(2);
  }
  return value;
}

/// The processes, and the pipe to which each writes a byte when it has received everything.
class Crowd {
 public:
  Crowd(uint32_t processes, uint32_t laps, uint32_t limit_s)
      : processes_(processes), limit_s_(limit_s), deadline_(Clock::now() + std::chrono::seconds(limit_s)) {
    const int memory = memfd_create("crowd", 0);
    if (memory < 0 || ftruncate(memory, static_cast<off_t>(Board::bytes(processes))) != 0)
      fail("the shared board");
    board_ = Board::map(memory, processes);
    board_->prepare(processes, laps);
    int ends[2];
    if (pipe(ends) != 0) fail("pipe");
    done_ = ends[0];
    for (uint32_t self = 0; self < processes; ++self) pids_.push_back(start(self, memory, ends[1]));
    close(ends[1]);
    close(memory);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;
  ~Crowd() { end_all(); }

  /// Returns false, after a message, if one of them fails or the time is over.
  bool await_all() {
    for (uint32_t done = 0; done < processes_;) {
      pollfd waits{done_, POLLIN, 0};
      char bytes[64];
      if (poll(&waits, 1, 50) > 0) {
        const ssize_t count = read(done_, bytes, sizeof bytes);
        if (count > 0) done += static_cast<uint32_t>(count);
      }
      if (!all_run(processes_ - done)) return false;
    }
    return true;
  }

  void print() const {
    uint64_t timeouts = 0;
    uint64_t messages = 0;
    Time connected{};
    Time end{};
    for (uint32_t self = 0; self < processes_; ++self) {
      const Report& one = board_->report(self);
      timeouts += one.timeouts;
      messages += one.messages;
      connected = std::max(connected, one.connected);
      end = std::max(end, one.end);
    }
    using Seconds = std::chrono::duration<double>;
    std::printf("{\"processes\": %u, \"messages\": %llu, \"timeouts\": %llu, \"connect_seconds\": %.3f, ",
                processes_, static_cast<unsigned long long>(messages),
                static_cast<unsigned long long>(timeouts), Seconds(connected - start_).count());
    std::printf("\"seconds\": %.3f, \"pids\": [", Seconds(end - connected).count());
    for (uint32_t self = 0; self < processes_; ++self)
      std::printf("%s%d", self == 0 ? "" : ", ", static_cast<int>(pids_[self]));
    std::puts("]}");
    std::fflush(stdout);
  }

  /// Lets them leave together, so that none ends before its peers have their last acknowledgements.
  bool release() {
    deadline_ = Clock::now() + std::chrono::seconds(limit_s_);
    board_->wait(Phase::leave);
    while (!pids_.empty()) {
      if (!all_run(static_cast<uint32_t>(pids_.size()))) return false;
      usleep(2000);
    }
    return true;
  }

 private:
  pid_t start(uint32_t self, int memory, int done) const {
    std::string words[] = {"crowd",
                           "member",
                           std::to_string(self),
                           std::to_string(processes_),
                           std::to_string(memory),
                           std::to_string(done)};
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    execv("/proc/self/exe", pointers.data());
    _exit(127);
  }

  /// Collects processes that have ended. Returns false, after a message, if one failed or the time is over.
  bool all_run(uint32_t missing) {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      std::erase(pids_, pid);
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      std::fprintf(stderr, "crowd: process %d ended with %s %d\n", static_cast<int>(pid),
                   WIFSIGNALED(status) ? "signal" : "status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
      return false;
    }
    if (Clock::now() < deadline_) return true;
    std::fprintf(stderr, "crowd: %u of %u processes have not finished within %u s\n", missing, processes_,
                 limit_s_);
    return false;
  }

  void end_all() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }

  uint32_t processes_;
  uint32_t limit_s_;
  Time start_ = Clock::now();
  Time deadline_;
  Board* board_ = nullptr;
  int done_ = -1;
  std::vector<pid_t> pids_;
};

int lead(int argc, char** argv) {
  const bool hold = argc == 5 && std::string_view(argv[4]) == "hold";
  if (argc != 4 && !hold) {
    std::fprintf(stderr, "%s\n", kUsage);
    return 2;
  }
  Crowd crowd(number(argv[1], "PROCESSES", 2, kMostProcesses), number(argv[2], "LAPS", 1, 1'000'000),
              number(argv[3], "LIMIT_S", 1, 100'000));
  if (!crowd.await_all()) return 1;
  crowd.print();
  char byte = 0;
  while (hold && read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return crowd.release() ? 0 : 1;
}

int follow(char** argv) {
  constexpr uint32_t kMostDescriptors = 1U << 20;
  const uint32_t processes = number(argv[3], "PROCESSES", 2, kMostProcesses);
  const uint32_t self = number(argv[2], "the member", 0, processes - 1);
  const auto memory = static_cast<int>(number(argv[4], "the board", 0, kMostDescriptors));
  const auto done = static_cast<int>(number(argv[5], "the pipe", 0, kMostDescriptors));
  Board* const board = Board::map(memory, processes);
  close(memory);
  take_part(*board, self, processes, done);
  return 0;
}

}  // namespace
}  // namespace faultline::crowd

int main(int argc, char** argv) {
  const bool member = argc == 6 && std::string_view(argv[1]) == "member";
  return member ? faultline::crowd::follow(argv) : faultline::crowd::lead(argc, argv);
}
