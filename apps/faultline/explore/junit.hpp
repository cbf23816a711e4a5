// SPDX-License-Identifier: BSD-3-Clause
// Results in JUnit's XML, as GitHub, GitLab and Jenkins read it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace faultline::cli {

struct JunitCase {
  std::string name;
  std::string failure_type = {};  ///< "": the case passed
  std::string message = {};
  std::string text = {};
};

/// Returns the document. Characters that XML 1.0 bars, and bytes that are no UTF-8, become "?".
[[nodiscard]] std::string junit_text(std::string_view suite, const std::vector<JunitCase>& cases);

}  // namespace faultline::cli
