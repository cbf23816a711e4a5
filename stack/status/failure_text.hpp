// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "stack/status/failure.hpp"

namespace faultline::status {

/// Returns one line: the QP and its peer, what happened, the request and the last facts, and what to look at.
[[nodiscard]] std::string text_of(const FailureRecord& record);

}  // namespace faultline::status
