// SPDX-License-Identifier: BSD-3-Clause
// Process-wide state in a child that is forked while another thread of the parent uses that state.
#include <csignal>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stack/base/process/fork_mutex.hpp"
#include "stack/base/process/inherited.hpp"
#include "stack/base/process/process_local.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/base/held_at_fork.hpp"

namespace faultline {
namespace {

struct Counted {
  std::mutex mutex;
  int count = 0;
};

constinit ProcessLocal<Counted> fresh;

int count_up() {
  Counted& object = fresh.get();
  const std::lock_guard lock(object.mutex);
  return ++object.count;
}

/// Two numbers that are equal whenever no thread holds the lock.
struct Pair {
  int first = 0;
  int second = 0;
};
constinit Inherited<Pair> pair;

/// Locks another mutex in between, at which a test can stop the thread.
void change_pair() {
  static std::mutex in_between;
  const auto access = pair.access();
  ++access->first;
  const std::lock_guard lock(in_between);
  ++access->second;
}

int status_of(pid_t child) {
  int status = -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

TEST(ProcessLocal, AChildStartsWithItsOwnWhileAThreadOfTheParentHoldsALock) {
  count_up();
  test::expect_children_end([] { count_up(); }, [] { return count_up() == 1 && count_up() == 2; });
}

TEST(ProcessLocal, AChildWithoutForkHandlersStartsWithItsOwn) {
  count_up();
  const pid_t child = _Fork();
  if (child == 0) {
    alarm(faultline::test::hang_seconds());
    _exit(count_up() == 1 ? 0 : 1);
  }
  EXPECT_EQ(status_of(child), 0);
}

TEST(Inherited, AChildContinuesWithAWholeObjectWhileAThreadOfTheParentChangesIt) {
  change_pair();
  test::expect_children_end(change_pair, [] {
    const auto access = pair.access();
    return access->first == access->second && access->first > 0;
  });
}

TEST(Inherited, TheParentContinuesAfterAFork) {
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    EXPECT_EQ(status_of(child), 0);
    change_pair();
  }
}

constinit ForkMutex mutex;

TEST(ForkMutex, IsUnlockedInAChildWithoutForkHandlers) {
  mutex.lock();
  const pid_t child = _Fork();
  if (child == 0) {
    alarm(faultline::test::hang_seconds());
    mutex.lock();
    _exit(0);
  }
  mutex.unlock();
  EXPECT_EQ(status_of(child), 0);
}

void fork_in_handler(int /*signal*/) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(faultline::test::hang_seconds());
    mutex.lock();
    _exit(0);
  }
  if (status_of(child) != 0) _exit(2);
}

TEST(ForkMutex, ASignalHandlerForksOnTopOfTheHolder) {
  const pid_t program = fork();
  if (program == 0) {
    alarm(faultline::test::hang_seconds());
    signal(SIGUSR1, fork_in_handler);
    mutex.lock();
    raise(SIGUSR1);
    mutex.unlock();
    mutex.lock();
    _exit(0);
  }
  EXPECT_EQ(status_of(program), 0);
}

constinit ForkMutex late;
bool locks_late = false;

/// Registered before watch_forks(), so its handler in the parent runs while all other mutexes are locked.
[[gnu::constructor]] void register_handler() {
  const auto in_parent = [] {
    if (locks_late) late.lock();
  };
  pthread_atfork(nullptr, in_parent, nullptr);
}

TEST(ForkMutex, AMutexFirstLockedDuringAForkStaysLocked) {
  change_pair();
  locks_late = true;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  locks_late = false;
  EXPECT_EQ(status_of(child), 0);
  bool is_free = true;
  std::thread([&] { is_free = late.try_lock(); }).join();
  EXPECT_FALSE(is_free);
  late.unlock();
}

}  // namespace
}  // namespace faultline
