// SPDX-License-Identifier: BSD-3-Clause
// How a program's signal handling interacts with turns that copy, with the library's hooks interposed on the
// C library's names. Each case runs in a separate process.
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "odp/copy/fault_handler.hpp"
#include "odp/copy/tolerant_copy.hpp"
#include "tests/unit/odp/engine_loop.hpp"

extern "C" sighandler_t bsd_signal(int, sighandler_t) noexcept;

namespace faultline::odp::signals_test {
namespace {

constexpr int kRight = 42;
constexpr int kSegvOnly = 1 << (SIGSEGV - 1);  // a BSD signal mask

/// Resets the handlers that a sanitizer may have installed.
struct DefaultActions {
  DefaultActions() {
    for (const int number : {SIGSEGV, SIGBUS}) std::signal(number, SIG_DFL);
  }
};

/// A domain with a memory session, as an open device has.
struct Opened : DefaultActions {
  std::unique_ptr<MemoryDomain> domain = test::make_domain();
  std::unique_ptr<EngineSession> session = domain->attach_engine();

  /// Runs a turn whose copy faults. The process dies if the library does not catch the fault.
  void turn_with_fault() const {
    session->enter();
    copy_to_nowhere();
    session->leave();
  }
  static void copy_to_nowhere() {
    const uint8_t byte = 1;
    if (tolerant_copy(reinterpret_cast<void*>(64), &byte, 1) != 0) _exit(2);
  }
};

/// Exits a child process with the line of a failed check.
#define CHECK_OR_EXIT(condition)                                           \
  do {                                                                     \
    if (!(condition)) {                                                    \
      dprintf(2, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); \
      _exit(3);                                                            \
    }                                                                      \
  } while (false)

void exit_right(int) {
  _exit(kRight);
}
void exit_wrong(int) {
  _exit(4);
}
void do_nothing(int) {}

volatile int* nowhere() {
  static volatile int* volatile null = nullptr;
  return null;
}

struct sigaction plain(sighandler_t handler, int flags = 0) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  return action;
}
struct sigaction present(int signal_number) {
  struct sigaction action {};
  CHECK_OR_EXIT(sigaction(signal_number, nullptr, &action) == 0);
  return action;
}
void set_action(int signal_number, const struct sigaction& action) {
  CHECK_OR_EXIT(sigaction(signal_number, &action, nullptr) == 0);
}

void set_and_restore(int pairs) {
  for (int i = 0; i < pairs; ++i) {
    const struct sigaction other = plain(exit_wrong);
    struct sigaction old {};
    CHECK_OR_EXIT(sigaction(SIGBUS, &other, &old) == 0);
    CHECK_OR_EXIT(sigaction(SIGBUS, &old, nullptr) == 0);
  }
}

TEST(ProgramActionDeathTest, OneHundredThousandPairsOfOneSignalLeaveTheOther) {
  EXPECT_EXIT(
      {
        const Opened opened;
        set_action(SIGSEGV, plain(exit_right));
        set_and_restore(100'000);
        opened.turn_with_fault();
        *nowhere() = 1;
      },
      testing::ExitedWithCode(kRight), "");
}

TEST(ProgramActionDeathTest, SurvivesPairsOfManyThreadsAndOfHandlers) {
  EXPECT_EXIT(
      {
        const Opened opened;
        set_action(SIGSEGV, plain(exit_right));
        set_action(SIGUSR1, plain([](int) { set_and_restore(10); }));
        std::vector<std::thread> threads;
        threads.reserve(4);
        for (int i = 0; i < 4; ++i)
          threads.emplace_back([] {
            for (int round = 0; round < 500; ++round) {
              set_and_restore(40);
              raise(SIGUSR1);
              CHECK_OR_EXIT(present(SIGSEGV).sa_handler == exit_right);
            }
          });
        for (std::thread& thread : threads) thread.join();
        opened.turn_with_fault();
        *nowhere() = 1;
      },
      testing::ExitedWithCode(kRight), "");
}

TEST(ProgramActionDeathTest, NoReaderSeesHalfAnAction) {
  EXPECT_EXIT(
      {
        const Opened opened;
        struct sigaction one = plain(exit_right, SA_RESTART);
        struct sigaction other = plain(exit_wrong, SA_NODEFER);
        sigfillset(&other.sa_mask);
        set_action(SIGSEGV, one);
        std::atomic<bool> done{false};
        std::thread writer([&] {
          for (int i = 0; i < 20'000; ++i) {
            set_action(SIGSEGV, other);
            set_action(SIGSEGV, one);
          }
          done = true;
        });
        while (!done) {
          const struct sigaction seen = present(SIGSEGV);
          const bool is_one = seen.sa_handler == exit_right;
          CHECK_OR_EXIT(is_one || seen.sa_handler == exit_wrong);
          CHECK_OR_EXIT((sigismember(&seen.sa_mask, SIGTERM) == 1) != is_one);
          CHECK_OR_EXIT(((seen.sa_flags & SA_RESTART) != 0) == is_one);
        }
        writer.join();
        _exit(kRight);
      },
      testing::ExitedWithCode(kRight), "");
}

// All variants of signal().

using SetHandler = sighandler_t (*)(int, sighandler_t) noexcept;
struct Form {
  const char* name;
  SetHandler set;
};
class SignalFormDeathTest : public testing::TestWithParam<Form> {};

TEST_P(SignalFormDeathTest, CopiesAreCaughtAndTheProgramsFaultReachesItsHandler) {
  for (const int number : {SIGSEGV, SIGBUS})
    EXPECT_EXIT(
        {
          const Opened opened;
          CHECK_OR_EXIT(GetParam().set(number, exit_right) == SIG_DFL);
          CHECK_OR_EXIT(present(number).sa_handler == exit_right);
          opened.turn_with_fault();
          if (number == SIGSEGV) *nowhere() = 1;
          raise(number);
        },
        testing::ExitedWithCode(kRight), "");
}

TEST_P(SignalFormDeathTest, RefusesWhatIsNoSignal) {
  EXPECT_EXIT(
      {
        errno = 0;
        CHECK_OR_EXIT(GetParam().set(0, exit_wrong) == SIG_ERR && errno == EINVAL);
        errno = 0;
        CHECK_OR_EXIT(GetParam().set(65, exit_wrong) == SIG_ERR && errno == EINVAL);
        errno = 0;
        CHECK_OR_EXIT(GetParam().set(SIGKILL, exit_wrong) == SIG_ERR && errno == EINVAL);
        _exit(kRight);
      },
      testing::ExitedWithCode(kRight), "");
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
INSTANTIATE_TEST_SUITE_P(Forms, SignalFormDeathTest,
                         testing::Values(Form{"signal", signal}, Form{"bsd_signal", bsd_signal},
                                         Form{"ssignal", ssignal}, Form{"sysv", __sysv_signal},
                                         Form{"sysv_signal", sysv_signal}, Form{"sigset", sigset}),
                         [](const auto& form) { return form.param.name; });

TEST(SignalFormsDeathTest, HaveTheSemanticsOfTheCLibrary) {
  EXPECT_EXIT(
      {
        const Opened opened;
        const sigset_t one = [] {
          sigset_t set;
          sigemptyset(&set);
          sigaddset(&set, SIGSEGV);
          return set;
        }();
        sigset_t mask;
        // signal(2): the BSD variant restarts system calls and blocks its signal; the System V variant is
        // reset and does neither.
        signal(SIGSEGV, do_nothing);
        CHECK_OR_EXIT((present(SIGSEGV).sa_flags & SA_RESTART) != 0);
        CHECK_OR_EXIT(siginterrupt(SIGSEGV, 1) == 0);
        CHECK_OR_EXIT((present(SIGSEGV).sa_flags & SA_RESTART) == 0);
        signal(SIGSEGV, do_nothing);
        CHECK_OR_EXIT((present(SIGSEGV).sa_flags & SA_RESTART) == 0);
        CHECK_OR_EXIT(siginterrupt(SIGSEGV, 0) == 0);
        CHECK_OR_EXIT((present(SIGSEGV).sa_flags & SA_RESTART) != 0);
        sysv_signal(SIGSEGV, do_nothing);
        CHECK_OR_EXIT((static_cast<unsigned>(present(SIGSEGV).sa_flags) & SA_RESETHAND) != 0);
        CHECK_OR_EXIT((present(SIGSEGV).sa_flags & SA_NODEFER) != 0);
        raise(SIGSEGV);
        CHECK_OR_EXIT(present(SIGSEGV).sa_handler == SIG_DFL);
        // sigset(3).
        CHECK_OR_EXIT(sigset(SIGSEGV, do_nothing) == SIG_DFL);
        CHECK_OR_EXIT(sigset(SIGSEGV, SIG_HOLD) == do_nothing);
        CHECK_OR_EXIT(sigset(SIGSEGV, SIG_HOLD) == SIG_HOLD);
        CHECK_OR_EXIT(pthread_sigmask(SIG_BLOCK, nullptr, &mask) == 0 && sigismember(&mask, SIGSEGV) == 1);
        CHECK_OR_EXIT(sigset(SIGSEGV, exit_right) == SIG_HOLD);
        CHECK_OR_EXIT(pthread_sigmask(SIG_BLOCK, nullptr, &mask) == 0 && sigismember(&mask, SIGSEGV) == 0);
        CHECK_OR_EXIT(sighold(SIGSEGV) == 0 && sigrelse(SIGSEGV) == 0 && sighold(0) == -1);
        CHECK_OR_EXIT(sigblock(kSegvOnly) == 0 && sigsetmask(0) == kSegvOnly);
        CHECK_OR_EXIT(pthread_sigmask(7, &one, nullptr) == EINVAL);
        errno = 0;
        CHECK_OR_EXIT(sigprocmask(7, &one, nullptr) == -1 && errno == EINVAL);
        CHECK_OR_EXIT(sigignore(SIGBUS) == 0 && present(SIGBUS).sa_handler == SIG_IGN);
        opened.turn_with_fault();
        raise(SIGBUS);
        raise(SIGSEGV);
      },
      testing::ExitedWithCode(kRight), "");
}

// Threads that block SIGSEGV and SIGBUS.

void block_all() {
  sigset_t all;
  sigfillset(&all);
  CHECK_OR_EXIT(pthread_sigmask(SIG_SETMASK, &all, nullptr) == 0);
}
bool is_blocked(int number) {
  sigset_t mask;
  CHECK_OR_EXIT(pthread_sigmask(SIG_SETMASK, nullptr, &mask) == 0);
  return sigismember(&mask, number) == 1;
}

using Block = void (*)();
struct Blocking {
  const char* name;
  Block block;
};
class BlockedDeathTest : public testing::TestWithParam<Blocking> {};

TEST_P(BlockedDeathTest, TurnsCatchTheirFaultsAndTheMaskStays) {
  EXPECT_EXIT(
      {
        const Opened opened;
        opened.turn_with_fault();
        GetParam().block();
        CHECK_OR_EXIT(is_blocked(SIGSEGV));
        for (int i = 0; i < 3; ++i) opened.turn_with_fault();
        CHECK_OR_EXIT(is_blocked(SIGSEGV));
        std::thread([&] {
          opened.turn_with_fault();
          CHECK_OR_EXIT(is_blocked(SIGSEGV));
        }).join();
        _exit(kRight);
      },
      testing::ExitedWithCode(kRight), "");
}

sigjmp_buf blocked_place;

INSTANTIATE_TEST_SUITE_P(Ways, BlockedDeathTest,
                         testing::Values(Blocking{"pthread_sigmask", block_all},
                                         Blocking{"sigprocmask",
                                                  [] {
                                                    sigset_t all;
                                                    sigfillset(&all);
                                                    sigprocmask(SIG_BLOCK, &all, nullptr);
                                                  }},
                                         Blocking{"sigblock", [] { sigblock(kSegvOnly); }},
                                         Blocking{"sigsetmask", [] { sigsetmask(-1); }},
                                         Blocking{"sighold", [] { sighold(SIGSEGV); }},
                                         Blocking{"sigset", [] { sigset(SIGSEGV, SIG_HOLD); }}),
                         [](const auto& way) { return way.param.name; });
#pragma GCC diagnostic pop

TEST(BlockedSignalDeathTest, AJumpBackToABlockedPlaceIsNoticed) {
  EXPECT_EXIT(
      {
        const Opened opened;
        block_all();
        if (sigsetjmp(blocked_place, 1) == 0) {
          sigset_t none;
          sigemptyset(&none);
          CHECK_OR_EXIT(pthread_sigmask(SIG_SETMASK, &none, nullptr) == 0);
          opened.turn_with_fault();
          opened.turn_with_fault();
          siglongjmp(blocked_place, 1);
        }
        CHECK_OR_EXIT(is_blocked(SIGSEGV));
        opened.turn_with_fault();
        CHECK_OR_EXIT(is_blocked(SIGSEGV));
        _exit(kRight);
      },
      testing::ExitedWithCode(kRight), "");
}

TEST(BlockedSignalDeathTest, AContextThatIsBlockedIsNoticed) {
  EXPECT_EXIT(
      {
        const Opened opened;
        opened.turn_with_fault();
        ucontext_t blocked;
        CHECK_OR_EXIT(getcontext(&blocked) == 0);
        static volatile bool back = false;
        if (!back) {
          back = true;
          sigfillset(&blocked.uc_sigmask);
          setcontext(&blocked);
        }
        CHECK_OR_EXIT(is_blocked(SIGSEGV));
        opened.turn_with_fault();
        _exit(kRight);
      },
      testing::ExitedWithCode(kRight), "");
}

/// Whether this kernel reports a blocked signal as pending. The one that qemu-user 7.2 imitates keeps SIGBUS
/// to itself.
bool reports_pending(int signal) {
  const pid_t child = fork();
  if (child == 0) {
    block_all();
    raise(signal);
    sigset_t pending;
    _exit(sigpending(&pending) == 0 && sigismember(&pending, signal) == 1 ? kRight : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == kRight;
}

// A turn that unblocked the signals takes none that were sent to a thread which blocks them.
TEST(BlockedSignalDeathTest, WhatIsSentDuringATurnIsPendingAfterIt) {
  if (!reports_pending(SIGBUS)) GTEST_SKIP() << "the kernel does not report a blocked SIGBUS as pending";
  EXPECT_EXIT(
      {
        const Opened opened;
        set_action(SIGBUS, plain(exit_wrong));
        opened.turn_with_fault();
        block_all();
        opened.session->enter();
        raise(SIGBUS);
        Opened::copy_to_nowhere();
        opened.session->leave();
        sigset_t pending;
        CHECK_OR_EXIT(sigpending(&pending) == 0 && sigismember(&pending, SIGBUS) == 1);
        sigset_t wanted;
        sigemptyset(&wanted);
        sigaddset(&wanted, SIGBUS);
        siginfo_t info;
        CHECK_OR_EXIT(sigwaitinfo(&wanted, &info) == SIGBUS && info.si_pid == getpid());
        _exit(kRight);
      },
      testing::ExitedWithCode(kRight), "");
}

const Opened* of_handler = nullptr;
void take_a_turn(int) {
  of_handler->turn_with_fault();
}
void take_a_turn_and_exit(int) {
  of_handler->turn_with_fault();
  _exit(kRight);
}

TEST(BlockedSignalDeathTest, HandlersWithAFullMaskTakeTurns) {
  for (const bool installed_before : {false, true})
    EXPECT_EXIT(
        {
          struct sigaction action = plain(take_a_turn);
          sigfillset(&action.sa_mask);
          if (installed_before) set_action(SIGUSR1, action);
          const Opened opened;
          of_handler = &opened;
          opened.turn_with_fault();
          if (!installed_before) set_action(SIGUSR1, action);
          CHECK_OR_EXIT(sigismember(&action.sa_mask, SIGSEGV) == 1);
          const struct sigaction seen = present(SIGUSR1);
          CHECK_OR_EXIT(sigismember(&seen.sa_mask, SIGSEGV) == 1 && sigismember(&seen.sa_mask, SIGTERM) == 1);
          raise(SIGUSR1);
          _exit(kRight);
        },
        testing::ExitedWithCode(kRight), "");
}

// The page handler of a far-memory runtime.
TEST(BlockedSignalDeathTest, TheProgramsHandlerOfTheSameSignalTakesTurns) {
  EXPECT_EXIT(
      {
        const Opened opened;
        of_handler = &opened;
        set_action(SIGSEGV, plain(take_a_turn_and_exit));
        opened.turn_with_fault();
        *nowhere() = 1;
      },
      testing::ExitedWithCode(kRight), "");
}

// Child processes.

TEST(ChildSignalsDeathTest, AVforkChildSetsItsOwnTableOnly) {
  EXPECT_EXIT(
      {
        const Opened opened;
        set_action(SIGSEGV, plain(exit_right));
        const struct sigaction reset = plain(SIG_DFL);
        // NOLINTBEGIN(clang-analyzer-unix.Vfork,clang-analyzer-security.insecureAPI.vfork): what is tested
        const pid_t child = vfork();
        if (child == 0) {
          // Python's subprocess module, before exec.
          struct sigaction old {};
          const bool told = sigaction(SIGSEGV, &reset, &old) == 0 && old.sa_handler == exit_right;
          sigaction(SIGSEGV, nullptr, &old);
          _exit(told && old.sa_handler == SIG_DFL ? 0 : 1);
        }
        // NOLINTEND(clang-analyzer-unix.Vfork,clang-analyzer-security.insecureAPI.vfork)
        int status = 0;
        CHECK_OR_EXIT(waitpid(child, &status, 0) == child && status == 0);
        CHECK_OR_EXIT(present(SIGSEGV).sa_handler == exit_right);
        *nowhere() = 1;
      },
      testing::ExitedWithCode(kRight), "");
}

TEST(ChildSignalsDeathTest, AForkedChildHasActionsOfItsOwn) {
  EXPECT_EXIT(
      {
        const Opened opened;
        set_action(SIGSEGV, plain(exit_right));
        const pid_t child = fork();
        if (child == 0) {
          CHECK_OR_EXIT(present(SIGSEGV).sa_handler == exit_right);
          set_action(SIGSEGV, plain(exit_wrong));
          Opened::copy_to_nowhere();
          *nowhere() = 1;
        }
        int status = 0;
        CHECK_OR_EXIT(waitpid(child, &status, 0) == child);
        CHECK_OR_EXIT(WIFEXITED(status) && WEXITSTATUS(status) == 4);
        *nowhere() = 1;
      },
      testing::ExitedWithCode(kRight), "");
}

// Handlers that bypass the hooks, and signal stacks.

struct RawAction {
  void (*handler)(int, siginfo_t*, void*);
  uint64_t flags;
  void* restorer;
  uint64_t mask;
};
RawAction raw_before;
void chain_to_before(int number, siginfo_t* info, void* context) {
  raw_before.handler(number, info, context);
}

TEST(BypassDeathTest, IsInstalledInFrontAgainAndChainsBothWays) {
  EXPECT_EXIT(
      {
        const Opened opened;
        set_action(SIGSEGV, plain(exit_right));
        // Like a runtime that makes its system calls directly.
        CHECK_OR_EXIT(syscall(SYS_rt_sigaction, SIGSEGV, nullptr, &raw_before, 8) == 0);
        RawAction own = raw_before;
        own.handler = chain_to_before;
        CHECK_OR_EXIT(syscall(SYS_rt_sigaction, SIGSEGV, &own, nullptr, 8) == 0);
        install_fault_handler();
        opened.turn_with_fault();
        *nowhere() = 1;
      },
      testing::ExitedWithCode(kRight), "");
}

TEST(BypassDeathTest, WhatRestoresOursRestoresTheProgramsAction) {
  EXPECT_EXIT(
      {
        const Opened opened;
        set_action(SIGSEGV, plain(exit_right));
        for (int i = 0; i < 20; ++i) {
          RawAction before;
          CHECK_OR_EXIT(syscall(SYS_rt_sigaction, SIGSEGV, nullptr, &before, 8) == 0);
          RawAction own = before;
          own.handler = [](int, siginfo_t*, void*) { _exit(4); };
          CHECK_OR_EXIT(syscall(SYS_rt_sigaction, SIGSEGV, &own, nullptr, 8) == 0);
          install_fault_handler();
          CHECK_OR_EXIT(syscall(SYS_rt_sigaction, SIGSEGV, &before, nullptr, 8) == 0);
        }
        opened.turn_with_fault();
        *nowhere() = 1;
      },
      testing::ExitedWithCode(kRight), "");
}

/// If the program's handler throws, the exception unwinds through the signal frame.
[[gnu::noinline]] void raise_and_catch(int number) {
  struct Guard {
    bool& seen;
    ~Guard() { seen = true; }
  };
  static bool destroyed = false;
  int (*volatile const send)(int) = raise;  // not called through the header's declaration, which is noexcept
  try {
    [[maybe_unused]] const Guard guard{destroyed};
    if (number == SIGSEGV)
      *nowhere() = 1;
    else
      send(number);
    _exit(5);
  } catch (int thrown) {
    _exit(thrown == number && destroyed ? kRight : 6);
  }
}

TEST(HandlerFrameDeathTest, ExceptionsPassThroughHandlers) {
  for (const int number : {SIGSEGV, SIGUSR1})
    EXPECT_EXIT(
        {
          const Opened opened;
          set_action(number, plain([](int signal_number) { throw signal_number; }));
          raise_and_catch(number);
        },
        testing::ExitedWithCode(kRight), "");
}

char* alternate = nullptr;
constexpr size_t kAlternateBytes = 1 << 16;
bool on_alternate() {
  const char here = 0;
  return &here >= alternate && &here < alternate + kAlternateBytes;
}

TEST(AlternateStackDeathTest, IsUsedIfTheProgramsActionAsksForIt) {
  for (const bool asks : {false, true})
    EXPECT_EXIT(
        {
          const Opened opened;
          alternate = static_cast<char*>(std::malloc(kAlternateBytes));
          stack_t stack{};
          stack.ss_sp = alternate;
          stack.ss_size = kAlternateBytes;
          CHECK_OR_EXIT(sigaltstack(&stack, nullptr) == 0);
          set_action(SIGSEGV, asks ? plain([](int) { _exit(on_alternate() ? kRight : 5); }, SA_ONSTACK)
                                   : plain([](int) { _exit(on_alternate() ? 5 : kRight); }));
          opened.turn_with_fault();
          *nowhere() = 1;
        },
        testing::ExitedWithCode(kRight), "");
}

}  // namespace
}  // namespace faultline::odp::signals_test
