// SPDX-License-Identifier: BSD-3-Clause
// Actions of a scenario on the queues that a call or a request concerns. Program's threads.
#pragma once

#include "stack/trouble/scenario.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

/// Executes an action whose concern_of() is a CQ or an SRQ; `concerned` has that queue.
void execute(const trouble::Action& action, const Concerned& concerned);

}  // namespace faultline::verbs
