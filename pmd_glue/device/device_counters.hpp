// SPDX-License-Identifier: BSD-3-Clause
// Which counters a scenario may wait for.
#pragma once

#include <string_view>

namespace faultline::glue {

/// True for a counter of docs/counters.md that an engine can read within its turn.
[[nodiscard]] bool can_be_waited_for(std::string_view counter);

}  // namespace faultline::glue
