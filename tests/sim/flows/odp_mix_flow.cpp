// SPDX-License-Identifier: BSD-3-Clause
// What a flow may show while the program at either end drops, zeroes or takes away pages. A zeroed byte is
// either zero or the message's byte, depending on the order; if the order is known, only one is allowed. A
// request fails only if it needed memory that was gone. It must fail if that memory was gone the whole time.
#include <algorithm>

#include "stack/transport/qp/queue_pair.hpp"
#include "stack/transport/rc/requester.hpp"
#include "tests/sim/flows/flow.hpp"

namespace faultline::sim {

using namespace transport;

Region* Flow::source_of(size_t send, uint64_t offset, uint64_t& va) const {
  const SendRequest& request = sends[send].request;
  if ((request.flags & kInline) != 0) return nullptr;
  if (request.opcode == SendOpcode::rdma_read) {
    va = request.remote_va + offset;
    return to_.host().memory.find(request.rkey);
  }
  if (has_answer(request.opcode)) return nullptr;
  for (const Sge& sge : request.sges) {
    va = sge.va + offset;
    if (offset < sge.length_bytes) return from_.host().memory.find(sge.lkey);
    offset -= sge.length_bytes;
  }
  return nullptr;
}

bool Flow::may_be_zero(size_t send, uint64_t offset) const {
  const PlannedSend& planned = sends[send];
  uint64_t va = 0;
  const Region* const source = source_of(send, offset, va);
  return (source != nullptr && source->was_zeroed(va, 0, planned.done_ns)) ||
         (planned.reads_back && may_be_zero(*planned.reads_back, offset));
}

bool Flow::must_be_zero(size_t send, uint64_t offset) const {
  const PlannedSend& planned = sends[send];
  if (planned.reads_back || planned.post_ns == 0) return false;
  uint64_t va = 0;
  const Region* const source = source_of(send, offset, va);
  return source != nullptr && source->was_zeroed(va, 0, planned.post_ns - 1);
}

void Flow::settle(MemoryImage& image, Region& region, uint64_t va, uint64_t length, size_t send,
                  uint64_t offset) const {
  const PlannedSend& planned = sends[send];
  for (uint64_t i = 0; i < length; ++i) {
    if (planned.payload[offset + i] == 0) continue;
    const bool zero_since = planned.done_ns != kNever && region.was_zeroed(va + i, planned.done_ns + 1);
    const bool is_zero = *region.at(va + i) == 0;
    if (zero_since || must_be_zero(send, offset + i) ||
        (is_zero && (region.was_zeroed(va + i, planned.post_ns) || may_be_zero(send, offset + i))))
      image.zero(region, va + i);
  }
}

/// The program receives the completion and calls madvise at once, before any other event.
void Flow::zero_pages_of(size_t send, TimeNs now) {
  const SendRequest& request = sends[send].request;
  const auto zero = [now](Region* region, uint64_t va, uint64_t length) {
    if (region == nullptr || !region->zeroable || length == 0) return;
    const uint64_t first = va / region->page_bytes;
    const uint64_t last = (va + length - 1) / region->page_bytes;
    region->zero_pages(now + 1, first - region->base / region->page_bytes, last - first + 1);
  };
  if (request.opcode == SendOpcode::rdma_write || request.opcode == SendOpcode::rdma_write_with_imm)
    zero(to_.host().memory.find(request.rkey), request.remote_va, request.length_bytes());
  if (request.opcode == SendOpcode::rdma_read)
    for (const Sge& sge : request.sges) zero(from_.host().memory.find(sge.lkey), sge.va, sge.length_bytes);
}

/// Returns whether a taking that satisfies `gone` overlaps memory that the send needs.
template <typename Gone>
bool Flow::any_gone(size_t send, Need need, Gone gone) const {
  const SendRequest& request = sends[send].request;
  const auto touched = [&gone](const Region* region, uint64_t va, uint64_t length, bool writes) {
    if (region == nullptr || length == 0) return false;
    return std::any_of(region->takings.begin(), region->takings.end(), [&](const Taking& taking) {
      return taking.overlaps(va - region->base, length) && (writes || taking.limit != PageLimit::read_only) &&
             gone(taking);
    });
  };
  const auto any_touched = [&](SimHost& host, const std::vector<Sge>& sges, bool writes) {
    return std::any_of(sges.begin(), sges.end(), [&](const Sge& sge) {
      return touched(host.memory.find(sge.lkey), sge.va, sge.length_bytes, writes);
    });
  };
  const bool answered = has_answer(request.opcode) && request.opcode != SendOpcode::atomic_write;
  switch (need) {
    case Need::local:
      return (request.flags & kInline) == 0 && any_touched(from_.host(), request.sges, answered);
    case Need::remote: {
      if (request.opcode == SendOpcode::send || request.opcode == SendOpcode::send_with_imm) return false;
      Region* const region = to_.host().memory.find(request.rkey);
      // A FLUSH accesses no bytes: only its key must be valid.
      if (request.opcode == SendOpcode::flush)
        return touched(region, region->base, region->bytes.size(), true);
      return touched(region, request.remote_va, request.length_bytes(),
                     request.opcode != SendOpcode::rdma_read);
    }
    case Need::receive: {
      if (!takes_receive(send) || request.opcode == SendOpcode::rdma_write_with_imm) return false;
      size_t receive = 0;
      for (size_t before = 0; before < send; ++before) receive += takes_receive(before) ? 1 : 0;
      if (receive >= receives.size()) return false;
      uint64_t left = sends[send].payload.size();
      std::vector<Sge> used;
      for (Sge sge : receives[receive].sges) {
        sge.length_bytes = static_cast<uint32_t>(std::min<uint64_t>(sge.length_bytes, left));
        left -= sge.length_bytes;
        used.push_back(sge);
      }
      return any_touched(to_.host(), used, true);
    }
  }
  return false;
}

bool Flow::needed_what_was_gone(size_t send, Need need, TimeNs now) const {
  return any_gone(send, need, [&](const Taking& taking) {
    return taking.from_ns <= now && taking.to_ns >= sends[send].post_ns;
  });
}

bool Flow::is_explained(size_t send, CompletionStatus status, TimeNs now) const {
  // A request that awaits a response fails together with a later request that the responder refuses.
  const auto any_from = [&](Need need) {
    for (size_t i = send; i < sends_posted_; ++i) {
      if (needed_what_was_gone(i, need, now)) return true;
      if (i == send && !has_answer(sends[send].request.opcode)) return false;
    }
    return false;
  };
  switch (status) {
    case CompletionStatus::local_protection:
      return needed_what_was_gone(send, Need::local, now);
    case CompletionStatus::remote_access:
      return any_from(Need::remote);
    case CompletionStatus::remote_operation:
      return any_from(Need::receive);
    case CompletionStatus::retry_exceeded:
      return receives_abandoned_ || to_.state() == QpState::err;
    default:
      return false;
  }
}

bool Flow::cannot_have_succeeded(size_t send, TimeNs now) const {
  const auto gone_all_the_while = [&](const Taking& taking) {
    return taking.from_ns <= sends[send].post_ns && taking.to_ns > now;
  };
  return any_gone(send, Need::local, gone_all_the_while) ||
         (sends[send].request.opcode != SendOpcode::flush &&
          any_gone(send, Need::remote, gone_all_the_while)) ||
         any_gone(send, Need::receive, gone_all_the_while);
}

}  // namespace faultline::sim
