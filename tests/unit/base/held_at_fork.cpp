// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/base/held_at_fork.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hang_limit.hpp"

namespace {

enum class Phase { runs, holds, released, ended };
constinit std::atomic<Phase> phase{Phase::runs};
/// True while the calling thread forks.
thread_local bool forks = false;
/// Mutexes that the calling thread locks before it stops; negative: it does not stop.
thread_local int locks_before_stop = -1;

void release() {
  Phase expected = Phase::holds;
  if (phase.compare_exchange_strong(expected, Phase::released)) phase.notify_all();
}

void stop_here() {
  phase = Phase::holds;
  phase.notify_all();
  phase.wait(Phase::holds);
}

}  // namespace

extern "C" int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
extern "C" int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex);

int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  if (locks_before_stop < 0) {
    // A fork handler: the thread that has stopped may hold this mutex, too.
    if (forks && pthread_mutex_trylock(mutex) == 0) return 0;
    if (forks) release();
    return __real_pthread_mutex_lock(mutex);
  }
  const int error = __real_pthread_mutex_lock(mutex);
  if (locks_before_stop-- == 0) stop_here();
  return error;
}

namespace faultline::test {
namespace {

/// The other threads of the process. By the system call: a program of these tests may interpose on readdir().
std::vector<std::string> other_threads() {
  std::vector<std::string> threads;
  const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alignas(dirent64) std::array<char, 4096> entries;
  for (long bytes = 0; (bytes = syscall(SYS_getdents64, folder, entries.data(), entries.size())) > 0;)
    for (long at = 0; at < bytes;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(&entries[static_cast<size_t>(at)]);
      const std::string name = entry->d_name;
      if (!name.starts_with('.') && name != std::to_string(gettid())) threads.push_back(name);
      at += entry->d_reclen;
    }
  close(folder);
  return threads;
}

/// How often each other thread of the process has waited; nothing if one runs.
std::optional<std::string> waits_of_others() {
  std::string result;
  for (const std::string& thread : other_threads()) {
    std::ifstream status("/proc/self/task/" + thread + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("State:") && line.find("S (sleeping)") == std::string::npos) return std::nullopt;
      if (line.starts_with("Pid:") || line.starts_with("voluntary_ctxt_switches:")) result += line + "\n";
    }
  }
  return result;
}

/// The thread of `hold` runs again once a fork handler has waited for its mutex, and so may those that it has
/// started. Each may hold a lock of the allocator of AddressSanitizer, which has no fork handlers in GCC 12:
/// the child would wait for it for ever. So all others sleep before the process forks.
void await_sleep() {
  if (!forks) return;
  std::optional<std::string> before;
  for (auto now = waits_of_others(); !now || now != before; now = waits_of_others()) {
    before = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// The handler that is registered first runs last: constructors of the product register others.
[[gnu::constructor(101)]] void register_handler() {
  pthread_atfork(await_sleep, nullptr, nullptr);
}

void expect_child_ends(const std::function<bool()>& in_child, int locks) {
  forks = true;
  const pid_t child = fork();
  forks = false;
  if (child == 0) {
    alarm(hang_seconds());
    _exit(in_child() ? 0 : 1);
  }
  release();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
      << "the child waits for mutex " << locks << ", which a thread of the parent holds";
  EXPECT_EQ(status, 0) << "mutex " << locks;
}

}  // namespace

void expect_children_end(const std::function<void()>& hold, const std::function<bool()>& in_child) {
  for (int locks = 0; !testing::Test::HasFailure(); ++locks) {
    phase = Phase::runs;
    std::thread holder([&hold, locks] {
      locks_before_stop = locks;
      hold();
      locks_before_stop = -1;
      phase = Phase::ended;
      phase.notify_all();
    });
    phase.wait(Phase::runs);
    const bool stopped = phase == Phase::holds;
    if (stopped) expect_child_ends(in_child, locks);
    holder.join();
    if (!stopped) {
      EXPECT_GT(locks, 0) << "the call locks no mutex";
      return;
    }
  }
}

}  // namespace faultline::test
