// SPDX-License-Identifier: BSD-3-Clause
// Prints docs/seeing/failures.md from the table of causes.
#include <cstdio>

#include "stack/status/failure.hpp"

int main() {
  using namespace faultline::status;
  std::puts(
      "# Why a QP failed\n\n"
      "Each failure has a cause with a number. Error completions carry it in `ibv_wc.vendor_err`, flushed "
      "ones too.\n"
      "`faultline_query_last_error()` returns it with the last facts of the QP, `faultline top` lists the "
      "newest 64 of\n"
      "each core (key `5`, `--json`, and `--post-mortem` after a kill), and the log has one line for each "
      "cause and\n"
      "peer at level info (`FAULTLINE_LOG=info`).\n\n"
      "A NAK tells its receiver little: look at the cause at the other end, too. Causes of 64 and above are "
      "not of a\n"
      "QP. They count packets that this end dropped, whose sender fails with `never_answered` or "
      "`stopped_answering`.\n\n"
      "This page is made from the table in the code; `meson test failure-page` compares the two.\n\n"
      "| vendor_err | name | what happened | look at |\n|---|---|---|---|");
  for (const FailureCauseRow& row : failure_causes())
    if (row.cause != FailureCause::none)
      std::printf("| %u | `%s` | %s | %s |\n", static_cast<unsigned>(row.cause), row.name.data(),
                  row.text.data(), row.check.data());
  return 0;
}
