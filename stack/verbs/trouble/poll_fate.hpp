// SPDX-License-Identifier: BSD-3-Clause
// What a scenario does to polls of a completion queue. Program's threads.
#pragma once

#include <cstdint>
#include <span>

#include "stack/verbs/objects/objects.hpp"

namespace faultline::verbs {

/// Asks the scenario, which exists, about a poll of a queue that has completions, and changes their order if
/// it asks for that. Returns how many the poll may return at most. The caller does not hold the queue's lock.
[[nodiscard]] uint32_t decide_poll(Cq& cq);

/// Completions that a poll has left count as arriving after it: raises an event if the queue is armed.
void arrive_late(Cq& cq);

/// Interleaves completions anew. Those of one work queue, which is a QP's send queue or its receives, keep
/// their order, as IBA 10.8.5 requires; any order of different work queues is allowed.
void shuffle(std::span<transport::Completion> completions, uint64_t choice);

}  // namespace faultline::verbs
