// SPDX-License-Identifier: BSD-3-Clause
// `faultline export`: the counters of this user's programs for Prometheus.
#pragma once

#include <string>

namespace faultline::cli {

struct ExportOptions {
  std::string listen;    ///< "PORT" or "ADDRESS:PORT"; "": no server
  std::string textfile;  ///< "": none
  std::string sysfs;     ///< folder; "": none
  unsigned seconds = 0;  ///< between two times of writing; 0: once
};

/// Prints the metrics, writes them to a file, or serves them until a signal ends the process. Returns the
/// exit status; a mistake is one line on stderr.
[[nodiscard]] int run_export(const ExportOptions& options);

}  // namespace faultline::cli
