// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/run/verdict.hpp"

#include <algorithm>
#include <csignal>

#include <gtest/gtest.h>

namespace faultline::cli::verdict_test {
namespace {

ProgramEnd exited(int status, size_t order = 0) {
  return {Ending::exited, status, 0, order, ""};
}
ProgramEnd signaled(int signal, size_t order = 0) {
  return {Ending::signaled, 0, signal, order, ""};
}
ProgramEnd hung(size_t order = 0) {
  return {Ending::timed_out, 0, SIGKILL, order, ""};
}
ProgramEnd ended(int status, int signal, size_t order = 0) {
  return {Ending::ended, status, signal, order, ""};
}
ProgramEnd reported(const std::string& line, size_t order = 0) {
  return {Ending::exited, 0, 0, order, line};
}

Verdict verdict_of(const std::vector<ProgramEnd>& ends, std::optional<int> pass = std::nullopt) {
  return judge(ends, {}, pass);
}

TEST(Verdict, PassesWhereAllEndWithZero) {
  EXPECT_EQ(verdict_of({exited(0)}).failure, Failure::none);
  EXPECT_EQ(verdict_of({exited(0), exited(0)}, 0).failure, Failure::none);
  EXPECT_EQ(verdict_of({exited(0)}).text, "");
}

TEST(Verdict, NamesEachFailure) {
  const Verdict status = verdict_of({exited(0), exited(3)});
  EXPECT_EQ(status.failure, Failure::exit_status);
  EXPECT_EQ(status.program, 1U);
  EXPECT_EQ(status.text, "program 1: exit status 3");
  EXPECT_EQ(verdict_of({signaled(SIGSEGV)}).text, "program 0: signal 11 (Segmentation fault)");
  EXPECT_EQ(verdict_of({signaled(SIGTERM)}).failure, Failure::signal) << "sent by another";
  EXPECT_EQ(verdict_of({hung()}).failure, Failure::hang);
  EXPECT_EQ(verdict_of({reported("x.c:1:2: runtime error: y")}).text, "program 0: x.c:1:2: runtime error: y");
  EXPECT_EQ(verdict_of({exited(0)}, 4).text, "wrong output: the command of --pass: exit status 4");
}

TEST(Verdict, LetsAServerEndInAnyWayButACrash) {
  EXPECT_EQ(verdict_of({ended(0, SIGTERM), exited(0)}).failure, Failure::none);
  EXPECT_EQ(verdict_of({ended(0, SIGKILL), exited(0)}).failure, Failure::none) << "it heeds no SIGTERM";
  EXPECT_EQ(verdict_of({ended(1, 0), exited(0)}).failure, Failure::none);
  EXPECT_EQ(verdict_of({ended(0, SIGABRT), exited(0)}).failure, Failure::signal);
  ProgramEnd leaking = ended(23, 0);
  leaking.sanitizer = "==7==ERROR: LeakSanitizer: detected memory leaks";
  EXPECT_EQ(verdict_of({leaking, exited(0)}).failure, Failure::sanitizer);
}

TEST(Verdict, AcceptsStatusesThatAreAllowed) {
  EXPECT_EQ(judge({exited(3)}, {{0, 3}}, std::nullopt).failure, Failure::none);
  EXPECT_EQ(judge({exited(4)}, {{0, 3}}, std::nullopt).failure, Failure::exit_status);
  EXPECT_EQ(judge({exited(3)}, {{0, 3}}, 1).failure, Failure::wrong_output) << "the output is checked too";
}

/// The more severe failure of any two is the verdict, wherever and whenever it was.
TEST(Verdict, PrefersTheMoreSevereFailure) {
  const std::vector<ProgramEnd> by_severity{reported("ERROR: AddressSanitizer: x"), signaled(SIGSEGV),
                                            exited(1), hung()};
  for (size_t severe = 0; severe < by_severity.size(); ++severe)
    for (size_t other = severe + 1; other < by_severity.size(); ++other)
      for (const bool is_first : {true, false})
        for (const bool is_early : {true, false}) {
          std::vector<ProgramEnd> ends{by_severity[severe], by_severity[other]};
          ends[0].order = is_early ? 0 : 1;
          ends[1].order = is_early ? 1 : 0;
          if (!is_first) std::swap(ends[0], ends[1]);
          const Verdict verdict = verdict_of(ends, 1);
          EXPECT_EQ(verdict.program, is_first ? 0U : 1U);
          EXPECT_EQ(verdict.failure, failure_of(by_severity[severe], {}));
        }
}

TEST(Verdict, PrefersTheEarlierOfTwoAlike) {
  EXPECT_EQ(verdict_of({exited(1, 1), exited(2, 0)}).program, 1U);
  EXPECT_EQ(verdict_of({exited(1, 0), exited(2, 1)}).program, 0U);
}

TEST(Verdict, FindsTheFirstReportOfASanitizer) {
  EXPECT_EQ(sanitizer_line(""), "");
  EXPECT_EQ(sanitizer_line("error: AddressSanitizer\nruntime errors\n"), "");
  for (const char* const report :
       {"==1==ERROR: AddressSanitizer: heap-use-after-free", "WARNING: ThreadSanitizer: data race (pid=1)",
        "==1==ERROR: LeakSanitizer: detected memory leaks", "a.c:3:1: runtime error: shift"}) {
    EXPECT_EQ(sanitizer_line(report), report);
    EXPECT_EQ(sanitizer_line(std::string("before\n") + report + "\nafter\nERROR: AddressSanitizer: later\n"),
              report);
  }
}

}  // namespace
}  // namespace faultline::cli::verdict_test
