// SPDX-License-Identifier: BSD-3-Clause
// What happened on each connection: which packets are retransmissions, what was acknowledged when, stalls,
// faults, waits, and the rules of thumb.
#pragma once

#include "apps/faultline/story/model.hpp"

namespace faultline::story {

/// Rows of the tables of stalls, faults and work requests.
inline constexpr size_t kMostRows = 200;
/// Assumed of a connection whose MTU no packet shows.
inline constexpr uint32_t kUsualMtuBytes = 1024;

/// Completes a story that has connections and events. On entry an event's PSN is the packet's; on return it
/// counts from the first.
void analyse(Story& story);

// The parts, in their order.

/// Makes PSNs relative, marks retransmissions, counts what each end sent.
void follow_psns(Story& story);
/// Finds stalls, and the faults that answers state.
void find_stalls(Story& story);
/// Finds when work requests were acknowledged and what they waited for; applies the rules about waits.
void find_waits(Story& story);
/// Applies the other rules of thumb, and sorts all findings by time; needs stalls and faults.
void find_trouble(Story& story);

}  // namespace faultline::story
