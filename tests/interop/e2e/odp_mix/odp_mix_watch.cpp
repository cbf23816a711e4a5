// SPDX-License-Identifier: BSD-3-Clause
// The process that watches over the two of odp_mix. It looks at the owner from outside: where the owner's
// address space is locked, its own threads could not say so.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/interop/e2e/odp_mix/odp_mix.hpp"

namespace faultline::e2e::mix {
namespace {

/// Where the kernel has each thread of a process, as far as this user may see it.
void tell_threads(pid_t process) {
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", error)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    std::string stack;
    std::ifstream file(task.path() / "stack");
    for (std::string line; std::getline(file, line);) {
      const size_t blank = line.find(' ');
      stack += line.substr(blank == std::string::npos ? 0 : blank) + ";";
    }
    if (stack.empty()) std::getline(std::ifstream(task.path() / "wchan"), stack);
    unsigned long long ran_ns = 0;
    unsigned long long waited_ns = 0;
    std::ifstream(task.path() / "schedstat") >> ran_ns >> waited_ns;
    std::fprintf(stderr, "odp_mix: owner: thread %s %s, ran %llu us, waited %llu us for a CPU: %s\n",
                 task.path().filename().c_str(), name.c_str(), ran_ns / 1000, waited_ns / 1000,
                 stack.c_str());
  }
}

class Watch {
 public:
  Watch(const SharedHead& head, pid_t owner) : head_(head), owner_(owner) {}

  /// False where something hangs.
  bool look() {
    const uint64_t now = now_ns();
    const uint64_t driven = head_.driven_at_ns.load(std::memory_order_relaxed);
    const uint64_t away_ns = driven == 0 || now < driven ? 0 : now - driven;
    constexpr uint64_t kAwayNs = 200'000'000;
    if (away_ns > kAwayNs && told_ < 3) {
      ++told_;
      tell("nobody drives the owner's engine", away_ns);
    }
    if (head_.timeout_seen.load(std::memory_order_acquire) && !timeout_told_) {
      timeout_told_ = true;
      tell("the peer had a timeout", 0);
    }
    bool hangs = away_ns > kHangNs;
    for (size_t i = 0; i < kThreads; ++i) {
      const uint64_t since = head_.doing[i].since_ns.load(std::memory_order_acquire);
      if (since == 0 || now < since + kAwayNs) continue;
      if (told_ < 6 && told_of_[i] != since) {
        ++told_;
        told_of_[i] = since;
        tell("a call takes long", now - since);
      }
      hangs |= now > since + kHangNs;
    }
    if (hangs) tell("that is a hang", 0);
    return !hangs;
  }

 private:
  void tell(const char* what, uint64_t since_ns) const {
    std::fprintf(stderr, "odp_mix: %s, %llu us\n", what, static_cast<unsigned long long>(since_ns / 1000));
    const uint64_t now = now_ns();
    for (const Doing& doing : head_.doing) {
      const uint64_t since = doing.since_ns.load(std::memory_order_acquire);
      if (since == 0 || since > now) continue;
      std::fprintf(stderr, "odp_mix: owner: %s on arena %u for %llu us\n",
                   calls_of_mix()[doing.call.load(std::memory_order_relaxed)],
                   doing.arena.load(std::memory_order_relaxed),
                   static_cast<unsigned long long>((now - since) / 1000));
    }
    tell_threads(owner_);
  }

  const SharedHead& head_;
  pid_t owner_;
  uint32_t told_ = 0;
  std::array<uint64_t, kThreads> told_of_{};  ///< the calls, by when they began
  bool timeout_told_ = false;
};

void tell_end(const char* who, int status) {
  std::fprintf(stderr, "odp_mix: %s ended with %s %d\n", who, WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

}  // namespace

int watch(const SharedHead& head, pid_t owner, pid_t peer) {
  uint64_t end = now_ns() + kMostNs + kHangNs;
  Watch watch(head, owner);
  bool bad = false;
  while (owner != 0 || peer != 0) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended > 0) {
      const char* const who = ended == owner ? "owner" : "peer";
      (ended == owner ? owner : peer) = 0;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      tell_end(who, status);
      // The other has a moment for what it has found.
      if (!bad) end = now_ns() + 2'000'000'000;
      bad = true;
      continue;
    }
    const bool hangs = !bad && owner != 0 && !watch.look();
    if (hangs || now_ns() > end) {
      if (!bad && !hangs) std::fprintf(stderr, "odp_mix: no end\n");
      bad = true;
      if (owner != 0) kill(owner, SIGKILL);
      if (peer != 0) kill(peer, SIGKILL);
      end = ~uint64_t{0};
    }
    usleep(10'000);
  }
  return bad ? 1 : 0;
}

}  // namespace faultline::e2e::mix
