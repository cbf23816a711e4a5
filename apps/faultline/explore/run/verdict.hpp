// SPDX-License-Identifier: BSD-3-Clause
// Whether a run of a test passed, from how its programs ended and what they wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace faultline::cli {

/// How the run of one program ended. `ended` is for a program that explore itself ended before the timeout: a
/// server after the others, or any program after the failure of another.
enum class Ending : uint8_t { exited, signaled, timed_out, ended };

struct ProgramEnd {
  Ending ending = Ending::exited;
  int status = 0;         ///< the exit status, if a signal did not end it
  int signal = 0;         ///< the signal that ended it, or 0
  size_t order = 0;       ///< position in the order of the programs' ends
  std::string sanitizer;  ///< the first line of a sanitizer's report, or ""
};

/// In the order of severity: one failure may cause another, such as the hang of a peer.
enum class Failure : uint8_t { none, sanitizer, signal, exit_status, hang, wrong_output };

struct Verdict {
  Failure failure = Failure::none;
  size_t program = 0;  ///< its index; for wrong output 0
  std::string text;    ///< "program 1: exit status 3"; "" if the run passed
};

/// What a run may do without failing.
struct Allowed {
  std::vector<int> statuses = {0};
  bool any_status = false;
};

/// Returns the most severe failure; of several alike the first in time. `pass_status` is the exit status of
/// the user's check of the output, if it was run.
[[nodiscard]] Verdict judge(const std::vector<ProgramEnd>& ends, const Allowed& allowed,
                            std::optional<int> pass_status);

/// Returns the failure of one program; `none` if its end is in order.
[[nodiscard]] Failure failure_of(const ProgramEnd& end, const Allowed& allowed);

/// Returns the first line of `text` with a report of AddressSanitizer, LeakSanitizer, ThreadSanitizer or
/// UndefinedBehaviorSanitizer; "" if there is none.
[[nodiscard]] std::string sanitizer_line(std::string_view text);

/// "exit status", "hang": for titles and the type of a JUnit failure.
[[nodiscard]] std::string_view name_of(Failure failure);

}  // namespace faultline::cli
