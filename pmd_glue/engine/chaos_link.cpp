// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/chaos_link.hpp"

#include <algorithm>
#include <tuple>

#include <rte_mbuf.h>

#include "pmd_glue/eal/mbuf_view.hpp"
#include "stack/wire/packet/ecn.hpp"
#include "stack/wire/packet/frame.hpp"

namespace faultline::glue {
namespace {

bool later(const ChaosLink::Held& a, const ChaosLink::Held& b) {
  return std::tie(a.due, a.order) > std::tie(b.due, b.order);
}

}  // namespace

ChaosLink::ChaosLink(const chaos::LinkModelConfig& config, rte_mempool* pool,
                     std::unique_ptr<chaos::FrameJudge> judge, Capture* capture)
    : model_(config), pool_(pool), judge_(std::move(judge)), capture_(capture) {
  held_.reserve(kHeld);
}

ChaosLink::~ChaosLink() {
  for (const Held& held : held_) rte_pktmbuf_free(held.frame);
  for (const Aside& aside : aside_) rte_pktmbuf_free(aside.frame);
}

void ChaosLink::lose(rte_mbuf* frame, ChaosCounts& counts) {
  ++counts.lost;
  if (capture_ != nullptr) capture_->settle(*frame, drop_counter(&verbs::PortCounters::chaos_lost));
  rte_pktmbuf_free(frame);
}

void ChaosLink::hold(rte_mbuf* frame, TimeNs due, ChaosCounts& counts) {
  if (held_.size() == kHeld) return lose(frame, counts);
  held_.push_back({due, next_order_++, frame});
  std::push_heap(held_.begin(), held_.end(), later);
}

void ChaosLink::set_aside(rte_mbuf* frame, uint32_t behind, TimeNs due, ChaosCounts& counts) {
  if (aside_.size() == kHeld) return lose(frame, counts);
  ++counts.delayed;
  aside_.push_back({frame, behind, due});
}

void ChaosLink::pass(TimeNs due, ChaosCounts& counts) {
  std::erase_if(aside_, [&](Aside& aside) {
    // With an equal time it is behind the frame that passes it.
    aside.due = std::max(aside.due, due);
    if (--aside.left != 0) return false;
    hold(aside.frame, aside.due, counts);
    return true;
  });
}

void ChaosLink::put(std::span<rte_mbuf* const> frames, TimeNs now, ChaosCounts& counts) {
  for (rte_mbuf* frame : frames) {
    chaos::Verdict verdict = model_.next(frame->data_len);
    if (judge_ != nullptr) judge_->amend(bytes_of(frame), now, verdict);
    const TimeNs due = now + verdict.delay_ns;
    if (verdict.delay_ns != 0) ++counts.delayed;
    if (verdict.duplicate)
      if (rte_mbuf* copy = rte_pktmbuf_copy(frame, pool_, 0, UINT32_MAX); copy != nullptr) {
        ++counts.duplicated;
        Capture::forget(*copy);
        hold(copy, due, counts);
      }
    if (verdict.drop) {
      lose(frame, counts);
      continue;
    }
    if (verdict.mark && wire::mark_congestion_experienced(bytes_of(frame))) ++counts.marked;
    verdict.mark = false;
    if (verdict.corrupt) {
      ++counts.corrupted;
      // The port verified the checksums of the undamaged frame.
      frame->ol_flags &= ~(RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK);
      chaos::damage(bytes_of(frame), verdict);
    }
    if (verdict.change_payload &&
        wire::change_payload(bytes_of(frame), (frame->ol_flags & RTE_MBUF_F_TX_UDP_CKSUM) != 0))
      ++counts.corrupted;
    if (verdict.behind != 0) {
      set_aside(frame, verdict.behind, due, counts);
      continue;
    }
    hold(frame, due, counts);
    if (!aside_.empty()) pass(due, counts);
  }
}

void ChaosLink::put(std::span<rte_mbuf* const> frames, TimeNs now, PortCounts& counts) {
  ChaosCounts outcomes;
  put(frames, now, outcomes);
  counts.chaos_lost.add(outcomes.lost);
  counts.chaos_duplicated.add(outcomes.duplicated);
  counts.chaos_corrupted.add(outcomes.corrupted);
  counts.chaos_delayed.add(outcomes.delayed);
  counts.chaos_marked.add(outcomes.marked);
}

size_t ChaosLink::take_due(TimeNs now, std::span<Held> out) {
  size_t taken = 0;
  while (taken < out.size() && !held_.empty() && held_.front().due <= now) {
    std::pop_heap(held_.begin(), held_.end(), later);
    out[taken++] = held_.back();
    held_.pop_back();
  }
  return taken;
}

void ChaosLink::give_back(std::span<const Held> frames) {
  for (const Held& held : frames) {
    held_.push_back(held);
    std::push_heap(held_.begin(), held_.end(), later);
  }
}

}  // namespace faultline::glue
