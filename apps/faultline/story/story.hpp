// SPDX-License-Identifier: BSD-3-Clause
// `faultline story`: a recording or a capture as one HTML page.
#pragma once

#include <string>

namespace faultline::cli {

struct StoryOptions {
  std::string file;
  std::string output;  ///< "": the file's name with ".html"
  bool as_json = false;
};

/// Writes the page, or prints the summary as JSON. Returns the exit status; a mistake is one line on stderr.
[[nodiscard]] int run_story(const StoryOptions& options);

}  // namespace faultline::cli
