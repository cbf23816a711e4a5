// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/base/held_at_fork.hpp"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

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

/// Much longer than any child takes, and shorter than a test's time limit.
constexpr unsigned kChildSeconds = 20;

void expect_child_ends(const std::function<bool()>& in_child, int locks) {
  forks = true;
  const pid_t child = fork();
  forks = false;
  if (child == 0) {
    alarm(kChildSeconds);
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
