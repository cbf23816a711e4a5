// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/run/verdict.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <tuple>

#include <spdlog/fmt/fmt.h>

namespace faultline::cli {
namespace {

constexpr std::array<std::string_view, 4> kReports{"ERROR: AddressSanitizer", "ERROR: LeakSanitizer",
                                                   "WARNING: ThreadSanitizer", "runtime error:"};

/// SIGTERM and SIGKILL are those with which explore ends a program.
bool is_crash(int signal) {
  return signal != 0 && signal != SIGTERM && signal != SIGKILL;
}

std::string text_of(Failure failure, const ProgramEnd& end) {
  switch (failure) {
    case Failure::sanitizer:
      return end.sanitizer;
    case Failure::signal:
      return fmt::format("signal {} ({})", end.signal, strsignal(end.signal));
    case Failure::exit_status:
      return fmt::format("exit status {}", end.status);
    case Failure::hang:
      return "hang: no end before the timeout";
    case Failure::none:
    case Failure::wrong_output:
      break;
  }
  return "";
}

}  // namespace

std::string sanitizer_line(std::string_view text) {
  size_t first = std::string_view::npos;
  for (const std::string_view report : kReports) first = std::min(first, text.find(report));
  if (first == std::string_view::npos) return "";
  const size_t before = text.rfind('\n', first);
  const size_t begin = before == std::string_view::npos ? 0 : before + 1;
  return std::string(text.substr(begin, text.find('\n', first) - begin));
}

Failure failure_of(const ProgramEnd& end, const Allowed& allowed) {
  if (!end.sanitizer.empty()) return Failure::sanitizer;
  switch (end.ending) {
    case Ending::exited:
      if (allowed.any_status) return Failure::none;
      return std::ranges::find(allowed.statuses, end.status) == allowed.statuses.end() ? Failure::exit_status
                                                                                       : Failure::none;
    case Ending::signaled:
      return Failure::signal;
    case Ending::timed_out:
      return Failure::hang;
    case Ending::ended:
      return is_crash(end.signal) ? Failure::signal : Failure::none;
  }
  return Failure::none;
}

Verdict judge(const std::vector<ProgramEnd>& ends, const Allowed& allowed, std::optional<int> pass_status) {
  Verdict verdict;
  size_t order = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const Failure failure = failure_of(ends[i], allowed);
    if (failure == Failure::none) continue;
    if (verdict.failure != Failure::none &&
        std::tuple(verdict.failure, order) <= std::tuple(failure, ends[i].order))
      continue;
    verdict = {failure, i, fmt::format("program {}: {}", i, text_of(failure, ends[i]))};
    order = ends[i].order;
  }
  if (verdict.failure == Failure::none && pass_status.value_or(0) != 0)
    return {Failure::wrong_output, 0,
            fmt::format("wrong output: the command of --pass: exit status {}", *pass_status)};
  return verdict;
}

std::string_view name_of(Failure failure) {
  switch (failure) {
    case Failure::none:
      return "passed";
    case Failure::sanitizer:
      return "sanitizer report";
    case Failure::signal:
      return "signal";
    case Failure::exit_status:
      return "exit status";
    case Failure::hang:
      return "hang";
    case Failure::wrong_output:
      return "wrong output";
  }
  return "";
}

}  // namespace faultline::cli
