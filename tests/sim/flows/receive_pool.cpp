// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/flows/receive_pool.hpp"

#include <algorithm>

namespace faultline::sim {

using namespace transport;

void ReceivePool::fail(const std::string& what) {
  if (error.empty()) error = "shared receives " + std::to_string(number_) + ": " + what;
}

void ReceivePool::pump(TimeNs now) {
  while (posted_ < receives.size() && receives[posted_].post_ns <= now) {
    const uint64_t wr_id = uint64_t{number_} << 32 | kReceiveBit | posted_;
    if (!ends.front()->post_receive(wr_id, receives[posted_].sges)) break;
    ++posted_;
  }
}

/// A QP takes the first receive of the queue at the first packet of a message, and has one at a time. So its
/// receives rise, and each one that was passed over and is still open belongs to another QP.
bool ReceivePool::is_in_order(size_t index, uint32_t qpn) {
  const auto [last, is_first] = last_by_qpn_.try_emplace(qpn, index);
  if (!is_first && last->second >= index) return false;
  last->second = index;
  while (first_open_ < receives.size() && completed_[first_open_]) ++first_open_;
  const auto open = std::count(completed_.begin() + static_cast<std::ptrdiff_t>(std::min(first_open_, index)),
                               completed_.begin() + static_cast<std::ptrdiff_t>(index), false);
  return static_cast<size_t>(open) < ends.size();
}

void ReceivePool::on_completion(const Completion& completion) {
  const size_t index = completion.wr_id & 0x7fffffff;
  const std::string whose = "receive " + std::to_string(index);
  completed_.resize(receives.size(), false);
  if (index >= posted_) return fail(whose + " completed but was not posted");
  if (completed_[index]) return fail(whose + " completed twice");
  completed_[index] = true;
  if (!is_in_order(index, completion.qpn)) return fail(whose + " was taken out of order");
  if (flows.empty())
    to_datagram_flow(completion, index);
  else
    to_flow(completion, index);
}

void ReceivePool::to_flow(const Completion& completion, size_t index) {
  for (Flow* flow : flows)
    if (flow->to().qpn() == completion.qpn) return flow->on_pooled_receive(completion, receives[index].sges);
  fail("a completion names QPN " + std::to_string(completion.qpn) + ", which takes no receive of it");
}

void ReceivePool::to_datagram_flow(const Completion& completion, size_t index) {
  for (DatagramFlow* flow : datagrams)
    if (flow->is_source_of(completion, receives[index].sges))
      return flow->on_pooled_receive(completion, receives[index].sges);
  fail("receive " + std::to_string(index) + " names source QPN " + std::to_string(completion.source_qpn) +
       " and an address, which together belong to no sender");
}

void ReceivePool::apply(MemoryImage& image) const {
  if (datagrams.empty()) return;
  for (size_t i = 0; i < receives.size(); ++i)
    if (i >= completed_.size() || !completed_[i])
      for (const Sge& sge : receives[i].sges)
        image.forget(*ends.front()->host().memory.find(sge.lkey), sge.va, sge.length_bytes);
}

void ReceivePool::check_end() {
  // What the messages of a failed flow did not take stays.
  if (!error.empty() || flows.empty() ||
      std::any_of(flows.begin(), flows.end(), [](const Flow* flow) { return flow->failure.has_value(); }))
    return;
  if (std::count(completed_.begin(), completed_.end(), true) != static_cast<std::ptrdiff_t>(receives.size()))
    fail("a receive was used up by nothing, or a message by no receive");
}

std::string ReceivePool::summary() const {
  return "shared receives " + std::to_string(number_) + ": " + std::to_string(posted_) + "/" +
         std::to_string(receives.size()) + " posted, " +
         std::to_string(std::count(completed_.begin(), completed_.end(), true)) + " completed\n";
}

}  // namespace faultline::sim
