// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/flows/flow.hpp"

#include <algorithm>
#include <cstring>

#include "stack/transport/qp/queue_pair.hpp"
#include "stack/transport/qp/shared_receive_queue.hpp"

namespace faultline::sim {

using namespace transport;

void MemoryImage::take(SimHost& host) {
  for (const Region& region : host.memory.regions()) images_[&region].bytes = region.bytes;
}

void MemoryImage::put(const Region& region, uint64_t va, std::span<const uint8_t> bytes) {
  Image& image = images_.at(&region);
  std::copy(bytes.begin(), bytes.end(), image.bytes.begin() + static_cast<std::ptrdiff_t>(va - region.base));
}

void MemoryImage::forget(const Region& region, uint64_t va, uint64_t length) {
  Image& image = images_.at(&region);
  if (!region.contains(va, length)) return;
  image.unknown.resize(image.bytes.size(), false);
  for (uint64_t i = 0; i < length; ++i) image.unknown[va - region.base + i] = true;
}

void MemoryImage::zero(const Region& region, uint64_t va) {
  images_.at(&region).bytes[va - region.base] = 0;
}

void MemoryImage::zero_what_the_program_did() {
  for (auto& [region, image] : images_)
    for (const Zeroing& zeroing : region->zeroings)
      std::fill_n(image.bytes.begin() + static_cast<std::ptrdiff_t>(zeroing.offset), zeroing.length,
                  uint8_t{0});
}

std::string MemoryImage::compare() const {
  for (const auto& [region, image] : images_) {
    if (image.bytes == region->bytes) continue;
    for (size_t i = 0; i < image.bytes.size(); ++i) {
      if (image.bytes[i] == region->bytes[i] || (!image.unknown.empty() && image.unknown[i])) continue;
      return "memory differs from the model at region 0x" + std::to_string(region->key) + " offset " +
             std::to_string(i) + " (page " + std::to_string(i / region->page_bytes) + ")";
    }
  }
  return {};
}

void Flow::fail(const std::string& what) {
  if (error.empty()) error = "flow " + std::to_string(number_) + ": " + what;
}

namespace {

bool is_atomic(SendOpcode opcode) {
  return opcode == SendOpcode::atomic_cmp_and_swp || opcode == SendOpcode::atomic_fetch_and_add;
}

/// Returns whether the response carries data.
bool brings_bytes(SendOpcode opcode) {
  return opcode == SendOpcode::rdma_read || is_atomic(opcode);
}

bool brings_answer(SendOpcode opcode) {
  return brings_bytes(opcode) || opcode == SendOpcode::flush || opcode == SendOpcode::atomic_write;
}

CompletionOpcode completion_of(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::rdma_read:
      return CompletionOpcode::rdma_read;
    case SendOpcode::rdma_write:
    case SendOpcode::rdma_write_with_imm:
      return CompletionOpcode::rdma_write;
    case SendOpcode::atomic_cmp_and_swp:
      return CompletionOpcode::comp_swap;
    case SendOpcode::atomic_fetch_and_add:
      return CompletionOpcode::fetch_add;
    case SendOpcode::flush:
      return CompletionOpcode::flush;
    case SendOpcode::atomic_write:
      return CompletionOpcode::atomic_write;
    default:
      return CompletionOpcode::send;
  }
}

}  // namespace

bool Flow::takes_receive(size_t send) const {
  const SendOpcode opcode = sends[send].request.opcode;
  return opcode == SendOpcode::send || opcode == SendOpcode::send_with_imm ||
         opcode == SendOpcode::rdma_write_with_imm;
}

size_t Flow::consuming() const {
  size_t count = 0;
  for (size_t i = 0; i < sends.size(); ++i) count += takes_receive(i) ? 1 : 0;
  return count;
}

bool Flow::signalled(size_t send) const {
  return signal_all || (sends[send].request.flags & kSignaled) != 0;
}

size_t Flow::message(size_t receive) const {
  for (size_t send = 0; send < sends.size(); ++send)
    if (takes_receive(send) && receive-- == 0) return send;
  return sends.size();
}

void Flow::abandon(const Endpoint& end) {
  (&end == &from_ ? sends_abandoned_ : receives_abandoned_) = true;
}

void Flow::freeze(const Region* region, uint64_t va, uint64_t length) {
  if (region == nullptr || length == 0 || !region->contains(va, length)) return;
  const auto offset = static_cast<std::ptrdiff_t>(va - region->base);
  frozen_.push_back({region,
                     va - region->base,
                     {region->bytes.begin() + offset,
                      region->bytes.begin() + offset + static_cast<std::ptrdiff_t>(length)}});
}

void Flow::freeze() {
  freeze(from_);
  freeze(to_);
}

void Flow::freeze(const Endpoint& end) {
  for (const PlannedSend& send : sends) {
    const SendRequest& request = send.request;
    if (&end == &from_) {
      if (!brings_bytes(request.opcode)) continue;
      for (const Sge& sge : request.sges)
        freeze(from_.host().memory.find(sge.lkey), sge.va, sge.length_bytes);
      continue;
    }
    const Region* const target = to_.host().memory.find(request.rkey);
    if (request.opcode == SendOpcode::rdma_write || request.opcode == SendOpcode::rdma_write_with_imm)
      freeze(target, request.remote_va, request.length_bytes());
    if (!send.remote_after.empty()) freeze(target, request.remote_va, send.remote_after.size());
  }
  if (&end == &from_) return;
  for (const PlannedReceive& receive : receives)
    for (const Sge& sge : receive.sges) freeze(to_.host().memory.find(sge.lkey), sge.va, sge.length_bytes);
}

void Flow::pump(TimeNs now) {
  while (!receives_abandoned_ && receives_posted_ < receives.size() &&
         receives[receives_posted_].post_ns <= now) {
    const uint64_t wr_id = uint64_t{number_} << 32 | kReceiveBit | receives_posted_;
    if (!to_.post_receive(wr_id, receives[receives_posted_].sges)) break;
    ++receives_posted_;
  }
  while (!sends_abandoned_ && sends_posted_ < sends.size() && sends[sends_posted_].post_ns <= now) {
    SendRequest request = sends[sends_posted_].request;
    request.wr_id = uint64_t{number_} << 32 | sends_posted_;
    if (from_.qp()->type == QpType::xrc_send) request.srq_number = number_of(to_.srq());
    if (!from_.post_send(request)) break;
    ++sends_posted_;
  }
}

void Flow::check_bytes(SimHost& host, const std::vector<Sge>& sges, size_t send, const std::string& whose) {
  const std::vector<uint8_t>& payload = sends[send].payload;
  size_t offset = 0;
  for (const Sge& sge : sges) {
    const size_t piece = std::min<size_t>(sge.length_bytes, payload.size() - offset);
    if (piece == 0) return;
    Region& region = *host.memory.find(sge.lkey);
    for (size_t i = 0; i < piece; ++i) {
      const uint8_t is = *region.at(sge.va + i);
      if (is == payload[offset + i] && (is == 0 || !must_be_zero(send, offset + i))) continue;
      if (is == 0 && (region.was_zeroed(sge.va + i, sends[send].post_ns) || may_be_zero(send, offset + i)))
        continue;
      return fail(whose + " completed with wrong bytes");
    }
    offset += piece;
  }
}

void Flow::on_send_completion(const Completion& completion, TimeNs now) {
  if (sends_abandoned_) return;
  const size_t index = completion.wr_id & 0x7fffffff;
  const std::string whose = "send " + std::to_string(index);
  if (index < next_send_ || index >= sends_posted_) return fail(whose + " completed out of order or twice");
  for (size_t passed = next_send_; passed < index; ++passed)
    if (signalled(passed) || failed_send_)
      return fail("send " + std::to_string(passed) + " got no completion");
  const size_t first = next_send_;
  next_send_ = index + 1;
  if (completion.qpn != from_.qpn()) return fail(whose + ": wrong QPN in its completion");
  if (completion.status == CompletionStatus::success) {
    if (failed_send_) return fail(whose + " succeeded behind a failed one");
    if (failure && failure->at && index >= *failure->at) return fail(whose + " succeeded but cannot have");
    if (!signalled(index)) return fail(whose + " is unsignalled but completed");
    for (size_t done = first; done <= index; ++done) {
      sends[done].done_ns = now;
      if (cannot_have_succeeded(done, now))
        return fail("send " + std::to_string(done) + " succeeded on memory that was gone all the while");
    }
    const SendRequest& request = sends[index].request;
    if (completion.opcode != completion_of(request.opcode))
      return fail(whose + ": wrong opcode in its completion");
    if (brings_bytes(request.opcode)) {
      if (completion.byte_length != sends[index].payload.size())
        return fail(whose + ": wrong length in its completion");
      check_bytes(from_.host(), request.sges, index, whose);
    }
    for (size_t done = first; done <= index; ++done)
      if (sends[done].zero_when_done) zero_pages_of(done, now);
    return;
  }
  const auto status = std::to_string(static_cast<int>(completion.status));
  if (!failure) return fail(whose + " failed with status " + status);
  if (failed_send_) {
    if (completion.status != CompletionStatus::work_request_flushed)
      fail(whose + ": status " + status + " behind a failed send, not flushed");
    return;
  }
  failed_send_ = index;
  if (std::find(failure->allowed.begin(), failure->allowed.end(), completion.status) ==
      failure->allowed.end())
    return fail(whose + " failed with a status that does not fit: " + status);
  if (failure->by_program && !is_explained(index, completion.status, now))
    return fail(whose + " failed with status " + status + " though it needed nothing that was gone");
  // A READ whose response was lost fails together with the QP.
  if (failure->at && index != *failure->at && completion.status == failure->allowed.front() &&
      (!brings_answer(sends[index].request.opcode) || index > *failure->at))
    fail(whose + " failed in place of send " + std::to_string(*failure->at));
}

void Flow::on_pooled_receive(Completion completion, const std::vector<Sge>& sges) {
  completion.wr_id = uint64_t{number_} << 32 | kReceiveBit | receives_posted_++;
  receives.push_back({sges, 0});
  on_receive_completion(completion);
}

void Flow::on_receive_completion(const Completion& completion) {
  if (receives_abandoned_) return;
  const size_t index = completion.wr_id & 0x7fffffff;
  const std::string whose = "receive " + std::to_string(index);
  if (index != received_ || index >= receives_posted_) return fail(whose + " completed out of order");
  ++received_;
  if (completion.qpn != to_.qpn()) return fail(whose + ": wrong QPN in its completion");
  if (completion.status != CompletionStatus::success) {
    const bool flushed = completion.status == CompletionStatus::work_request_flushed;
    const bool meant =
        failure && failure->receive_status == completion.status && received_well_ + 1 == received_;
    if (!failure || (!flushed && !meant))
      fail(whose + " failed with status " + std::to_string(static_cast<int>(completion.status)));
    return;
  }
  if (received_well_ != index) return fail(whose + " succeeded behind a failed one");
  ++received_well_;
  const size_t send = message(index);
  if (send >= sends_posted_) return fail(whose + " completed without a message");
  // Requests after a READ may be executed before the READ fails (IBA 10.8.3.3, table 79).
  if (failure && failure->at && send >= *failure->at && !brings_answer(sends[*failure->at].request.opcode))
    return fail(whose + " holds a message that cannot have come");
  const SendRequest& request = sends[send].request;
  const bool write = request.opcode == SendOpcode::rdma_write_with_imm;
  const bool immediate = write || request.opcode == SendOpcode::send_with_imm;
  if (completion.opcode != (write ? CompletionOpcode::recv_rdma_with_imm : CompletionOpcode::recv))
    return fail(whose + ": wrong opcode");
  if (completion.byte_length != sends[send].payload.size()) return fail(whose + ": wrong length");
  if (((completion.flags & kWithImm) != 0) != immediate) return fail(whose + ": wrong flags");
  if (immediate && completion.immediate_or_rkey != request.immediate)
    return fail(whose + ": wrong immediate");
  if ((completion.solicited != 0) != ((request.flags & kSolicited) != 0))
    return fail(whose + ": wrong solicited flag");
  if (!write) check_bytes(to_.host(), receives[index].sges, send, whose);
}

bool Flow::done() const {
  if (!error.empty() || sends_abandoned_) return true;
  if (sends_posted_ < sends.size() || !from_.all_sends_retired()) return false;
  if (failure) return failed_send_ ? next_send_ == sends.size() : !failure->at;
  return std::all_of(sends.begin() + static_cast<std::ptrdiff_t>(next_send_), sends.end(),
                     [this](const PlannedSend& send) {
                       return !signal_all && (send.request.flags & kSignaled) == 0;
                     }) &&
         received_well_ == (pooled ? consuming() : receives.size());
}

void Flow::apply(MemoryImage& image) const {
  const size_t succeeded = sends_abandoned_ || receives_abandoned_ ? 0 : failed_send_.value_or(sends.size());
  size_t receive = 0;
  for (size_t i = 0; i < sends.size(); ++i) {
    const SendRequest& request = sends[i].request;
    std::span<const uint8_t> left = sends[i].payload;
    const bool known = i < succeeded;
    const auto scatter = [&](SimHost& host, const std::vector<Sge>& sges) {
      for (const Sge& sge : sges) {
        Region* region = host.memory.find(sge.lkey);
        if (region == nullptr) return;
        const size_t piece = known ? std::min<size_t>(sge.length_bytes, left.size()) : sge.length_bytes;
        if (known) {
          image.put(*region, sge.va, left.first(piece));
          settle(image, *region, sge.va, piece, i, sends[i].payload.size() - left.size());
          left = left.subspan(piece);
        } else {
          image.forget(*region, sge.va, piece);
        }
      }
    };
    const bool write =
        request.opcode == SendOpcode::rdma_write || request.opcode == SendOpcode::rdma_write_with_imm;
    if (brings_bytes(request.opcode)) scatter(from_.host(), request.sges);
    if (!sends[i].remote_after.empty()) {
      const Region& region = *to_.host().memory.find(request.rkey);
      if (known)
        image.put(region, request.remote_va, sends[i].remote_after);
      else
        image.forget(region, request.remote_va, sends[i].remote_after.size());
    }
    if (write) {
      const uint32_t length = request.length_bytes();
      scatter(to_.host(), {{request.remote_va, length, request.rkey}});
    }
    if (takes_receive(i)) {
      if (!write && receive < receives.size()) scatter(to_.host(), receives[receive].sges);
      ++receive;
    }
  }
}

void Flow::check_end() {
  if (!error.empty()) return;
  for (const Frozen& frozen : frozen_)
    if (!std::equal(frozen.bytes.begin(), frozen.bytes.end(),
                    frozen.region->bytes.begin() + static_cast<std::ptrdiff_t>(frozen.offset)))
      return fail("a byte was written after its connection had ended");
  if (sends_abandoned_ || receives_abandoned_) return;
  if (failure && failure->at && !failed_send_) fail("nothing failed though something had to");
  if (failure) return;
  if (received_well_ != consuming()) fail("a receive was used up by nothing, or a message by no receive");
}

std::string Flow::summary() const {
  return "flow " + std::to_string(number_) + ": " + std::to_string(sends_posted_) + "/" +
         std::to_string(sends.size()) + " posted, " + std::to_string(next_send_) + " accounted for" +
         (from_.all_sends_retired() ? "" : ", ring not empty") + "; receives " +
         std::to_string(received_well_) + " well, " + std::to_string(received_) + " in all, of " +
         std::to_string(receives.size()) + "; QP states " + std::to_string(static_cast<int>(from_.state())) +
         " " + std::to_string(static_cast<int>(to_.state())) + (failure ? " (meant to fail)" : "") + "\n";
}

}  // namespace faultline::sim
