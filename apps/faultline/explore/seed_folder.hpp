// SPDX-License-Identifier: BSD-3-Clause
// What is written of a failing seed: its folder, and its text on stderr.
#pragma once

#include <string>

#include "apps/faultline/explore/cause.hpp"

namespace faultline::cli {

/// Writes `folder` of a finding: summary.json, scenarios, journals, outputs, stories. Removes what an earlier
/// explore left there. Returns one line if that fails, or "".
[[nodiscard]] std::string write_seed_folder(const std::string& folder, const RunPlan& plan,
                                            const std::string& scenario_name, const Finding& finding);

/// Lines with the seed, the failure, the numbers of decisions, and each decision that is left; ends with a
/// newline.
[[nodiscard]] std::string text_of(const Finding& finding);

}  // namespace faultline::cli
