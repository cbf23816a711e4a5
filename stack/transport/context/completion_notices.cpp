// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/context/completion_notices.hpp"

#include <algorithm>

namespace faultline::transport {

void CompletionNotices::note(CompletionQueue& cq, const Completion& completion, TimeNs now_ns) {
  size_t at = 0;
  while (at < pushed_count_ && pushed_[at].cq != &cq) ++at;
  if (at == pushed_.size()) {
    ask(now_ns);
    at = 0;
  }
  if (at == pushed_count_) pushed_[pushed_count_++] = {&cq, {}};
  cq.note(completion, pushed_[at].what);
  if (defers_ && !cq.seems_armed()) return;
  const PushedTo last = pushed_[at];
  pushed_[at] = pushed_[--pushed_count_];
  give(*last.cq, last.what, now_ns);
}

void CompletionNotices::ask(TimeNs now_ns) {
  for (; pushed_count_ != 0; --pushed_count_)
    give(*pushed_[pushed_count_ - 1].cq, pushed_[pushed_count_ - 1].what, now_ns);
}

void CompletionNotices::give(CompletionQueue& cq, const CompletionQueue::Pushed& pushed, TimeNs now_ns) {
  switch (cq.notice(pushed, now_ns)) {
    case Notice::none:
      return;
    case Notice::now:
      events_->on_completion(&cq);
      return;
    case Notice::later:
      if (cq.listed.exchange(true, std::memory_order_acq_rel)) return;
      cq.next_listed = moderated_;
      moderated_ = &cq;
      return;
  }
}

void CompletionNotices::end_moderations(TimeNs now_ns) {
  for (CompletionQueue** link = &moderated_; *link != nullptr;) {
    CompletionQueue& cq = **link;
    if (cq.notice_deadline() > now_ns) {
      link = &cq.next_listed;
      continue;
    }
    *link = cq.next_listed;
    cq.listed.store(false, std::memory_order_release);
    if (cq.end_moderation()) events_->on_completion(&cq);
  }
}

TimeNs CompletionNotices::next_moderation() const {
  TimeNs earliest = kNever;
  for (const CompletionQueue* cq = moderated_; cq != nullptr; cq = cq->next_listed)
    earliest = std::min(earliest, cq->notice_deadline());
  return earliest;
}

void CompletionNotices::forget(const CompletionQueue& gone) {
  CompletionQueue** link = &moderated_;
  while (*link != nullptr && *link != &gone) link = &(*link)->next_listed;
  if (*link != nullptr) *link = gone.next_listed;
}

}  // namespace faultline::transport
