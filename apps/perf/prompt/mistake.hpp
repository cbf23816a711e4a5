// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>

namespace faultline::perf {

/// A command cannot be done. One line: what is wrong, and what to do about it.
class Mistake : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace faultline::perf
