// SPDX-License-Identifier: BSD-3-Clause
// Delta debugging: the fewest decisions with which a test still fails (Zeller and Hildebrandt, "Simplifying
// and Isolating Failure-Inducing Input", 2002: ddmin).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace faultline::cli {

enum class Trial : uint8_t { fails, passes, unknown };

/// Indices, ascending.
using Subset = std::vector<size_t>;

struct Reduction {
  Subset kept;              ///< the test fails with these
  bool is_minimal = false;  ///< it was seen to pass without any one of them
  size_t trials = 0;        ///< subsets that were tried; none of them twice
};

/// Reduces 0..count-1, with which the test fails; with none of them it passes. `trial` is called for a subset
/// at most once, and at most `most_trials` times altogether. `unknown` ends the search, as at an interrupt. A
/// test whose failures are not monotone may have several minimal subsets: one of them is returned.
[[nodiscard]] Reduction reduce(size_t count, size_t most_trials,
                               const std::function<Trial(const Subset&)>& trial);

}  // namespace faultline::cli
