// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/trouble/effects.hpp"

#include "stack/verbs/objects/objects.hpp"

namespace faultline::verbs {
namespace {

/// An event without a completion: ibv_get_cq_event(3) allows it, since another thread may have polled.
void wake(Cq& cq) {
  if (cq.has_channel) static_cast<CompletionChannel*>(cq.channel)->raise(cq);
}

/// As ibv_modify_cq(3): an event is late, and stands for all completions until then.
void moderate(Cq& cq, TimeNs period_ns) {
  cq.moderated.store(true, std::memory_order_relaxed);
  cq.moderate(0, period_ns);
}

void overflow(Cq& cq) {
  if (cq.ignores_overrun) return;
  cq.mark_overrun();
  const TimeNs now = cq.engine->backend->now();
  cq.engine->on_every_owner([&cq, now](transport::Core& core) { core.fail_qps_of(cq, now); });
  context_of(cq.context).events.raise(cq.event_source, IBV_EVENT_CQ_ERR);
}

}  // namespace

void execute(const trouble::Action& action, const Concerned& concerned) {
  using enum trouble::Action::Kind;
  const auto event = static_cast<ibv_event_type>(action.number);
  switch (action.kind) {
    case raise_cq_event: {
      Cq& cq = cq_of(concerned.cq);
      return context_of(cq.context).events.raise(cq.event_source, event);
    }
    case raise_srq_event: {
      Srq& srq = srq_of(concerned.srq);
      return context_of(srq.context).events.raise(srq.event_source, event);
    }
    case overflow_cq:
      return overflow(cq_of(concerned.cq));
    case wake:
      return verbs::wake(cq_of(concerned.cq));
    case trouble::Action::Kind::moderate:
      return verbs::moderate(cq_of(concerned.cq), action.duration_ns);
    default:
      return;
  }
}

}  // namespace faultline::verbs
