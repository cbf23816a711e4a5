// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/trouble/poll_fate.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "stack/chaos/random.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {
namespace {

using transport::Completion;
using trouble::Action;

/// A work queue: the QP, and whether its receives or its sends.
uint64_t work_queue_of(const Completion& completion) {
  const bool is_receive = (static_cast<uint32_t>(completion.opcode) & IBV_WC_RECV) != 0;
  return uint64_t{completion.qpn} << 1 | (is_receive ? 1 : 0);
}

/// Facts of the queue's completions. They may be more when the scenario's action takes place.
struct Waiting {
  uint64_t count = 0;
  bool are_of_several = false;  ///< work queues
};

Waiting look(Cq& cq) {
  const std::lock_guard lock(cq.poll_lock);
  const std::vector<Completion> waiting = cq.waiting();
  const bool are_of_several = std::ranges::any_of(
      waiting, [&](const Completion& one) { return work_queue_of(one) != work_queue_of(waiting.front()); });
  return {waiting.size(), are_of_several};
}

}  // namespace

uint32_t decide_poll(Cq& cq) {
  // Other rules do not look at what waits.
  const bool is_asked = trouble::director()->concerns(trouble::EventKind::poll);
  const Waiting waiting = is_asked ? look(cq) : Waiting{};
  uint64_t choice = 0;
  trouble::Event poll{.kind = trouble::EventKind::poll, .name = {}, .object = {}};
  poll.completions = waiting.count;
  poll.choice = &choice;
  if (waiting.are_of_several) poll.concerns = trouble::kConcernsQueues;
  const Action* const action = decide(poll, concerned_by(ibv_cq_ex_to_cq(&cq)));
  if (action == nullptr) return UINT32_MAX;
  if (action->kind == Action::Kind::poll_nothing) return 0;
  if (action->kind == Action::Kind::poll_few) return static_cast<uint32_t>(action->amount);
  const std::lock_guard lock(cq.poll_lock);
  std::vector<Completion> all = cq.waiting();
  shuffle(all, choice);
  cq.reorder_waiting(all);
  return UINT32_MAX;
}

void arrive_late(Cq& cq) {
  const bool is_due = [&cq] {
    const std::lock_guard lock(cq.poll_lock);
    return !cq.empty() && cq.take_armed_by_late();
  }();
  if (is_due && cq.has_channel) static_cast<CompletionChannel*>(cq.channel)->raise(cq);
}

void shuffle(std::span<Completion> completions, uint64_t choice) {
  std::vector<uint64_t> order;
  std::map<uint64_t, std::vector<Completion>> queues;
  for (const Completion& one : completions) {
    order.push_back(work_queue_of(one));
    queues[order.back()].push_back(one);
  }
  // Fisher and Yates: each interleaving is equally likely.
  chaos::Random random(choice);
  for (size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[random.below(left)]);
  std::map<uint64_t, size_t> taken;
  for (size_t i = 0; i < completions.size(); ++i) completions[i] = queues[order[i]][taken[order[i]]++];
}

}  // namespace faultline::verbs
