// SPDX-License-Identifier: BSD-3-Clause
// What `set` changes between two runs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/perf/plan/options.hpp"
#include "apps/perf/prompt/background_run.hpp"

namespace faultline::perf {

struct Settings {
  TestOptions test;
  RunLength length;
  uint32_t max_mtu_bytes = 0;  ///< the largest path MTU that both ports carry
};

/// One word of `set`, named as the option of the command line.
struct Setting {
  const char* name;
  const char* summary;
  const char* values;                          ///< for people
  std::vector<std::string> (*candidates)();    ///< for completion; the values without those in a range
  bool (*set)(Settings&, const std::string&);  ///< returns false if this is not a value
  std::string (*get)(const Settings&);
};

[[nodiscard]] std::span<const Setting> settings();
/// Returns nullptr if there is no such setting.
[[nodiscard]] const Setting* setting_of(const std::string& name);

}  // namespace faultline::perf
