// SPDX-License-Identifier: BSD-3-Clause
// `faultline doctor`: what is missing or limited on this machine, what is lost by it, and what mends it.
#pragma once

#include <string>

#include "apps/faultline/checks.hpp"
#include "apps/faultline/start_program.hpp"

namespace faultline::cli {

/// Returns the page: a line a check and one with the result, or JSON.
[[nodiscard]] std::string doctor_page(const Facts& facts, bool as_json);
/// Returns whether verbs programs run, if limited.
[[nodiscard]] bool do_programs_run(const Facts& facts);

/// Examines the machine with these devices, or with a wire of its own if there are none, and prints the page.
/// Returns the exit status: 0 if verbs programs run, 1 if not.
[[nodiscard]] int run_doctor(const DeviceChoice& devices, bool as_json);

}  // namespace faultline::cli
