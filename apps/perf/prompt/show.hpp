// SPDX-License-Identifier: BSD-3-Clause
// What `show` prints.
#pragma once

#include <span>
#include <string>

#include "apps/perf/prompt/bench.hpp"
#include "apps/perf/prompt/settings.hpp"

namespace faultline::perf {

/// One word of `show`.
struct View {
  const char* name;
  const char* arguments;  ///< for people
  const char* summary;
  bool takes_all;  ///< `all` shows zeros too
  void (*show)(Bench&, const Arguments&);
};

[[nodiscard]] std::span<const View> views();
/// Returns nullptr if there is no such view.
[[nodiscard]] const View* view_of(const std::string& name);

/// Returns the settings of the next run.
[[nodiscard]] Settings settings_of(const Bench& bench);

}  // namespace faultline::perf
