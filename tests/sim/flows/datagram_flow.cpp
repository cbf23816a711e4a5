// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/flows/datagram_flow.hpp"

#include <algorithm>

namespace faultline::sim {

using namespace transport;

namespace {

/// Returns whether the GRH that begins a UD receive names the two addresses. IBA A17.4.5.1: an IPv4 header
/// sits in the last 20 of the 40 bytes.
bool names_addresses(std::span<const uint8_t> bytes, const wire::Gid& source, const wire::Gid& destination) {
  const auto has = [&bytes](size_t at, const wire::Gid& gid, size_t skip) {
    return std::equal(gid.bytes.begin() + static_cast<std::ptrdiff_t>(skip), gid.bytes.end(),
                      bytes.begin() + static_cast<std::ptrdiff_t>(at));
  };
  if (bytes.size() < wire::kGrhBytes) return false;
  return source.is_ipv4() ? has(32, source, 12) && has(36, destination, 12)
                          : has(8, source, 0) && has(24, destination, 0);
}

}  // namespace

void DatagramFlow::fail(const std::string& what) {
  if (error.empty()) error = "datagram flow " + std::to_string(number_) + ": " + what;
}

void DatagramFlow::pump(TimeNs now) {
  while (receives_posted_ < receives.size() && receives[receives_posted_].post_ns <= now) {
    const uint64_t wr_id = uint64_t{number_} << 32 | kReceiveBit | receives_posted_;
    if (!to_.post_receive(wr_id, receives[receives_posted_].sges)) break;
    ++receives_posted_;
  }
  while (sends_posted_ < sends.size() && sends[sends_posted_].post_ns <= now) {
    SendRequest request = sends[sends_posted_].request;
    request.wr_id = uint64_t{number_} << 32 | sends_posted_;
    if (!from_.post_send(request)) break;
    ++sends_posted_;
  }
}

void DatagramFlow::on_send_completion(const Completion& completion) {
  if ((completion.wr_id & 0x7fffffff) != completed_) return fail("a send completed out of order");
  ++completed_;
  if (completion.status != CompletionStatus::success || completion.opcode != CompletionOpcode::send)
    fail("a send completed with status " + std::to_string(static_cast<int>(completion.status)));
}

void DatagramFlow::on_receive_completion(const Completion& completion) {
  const size_t index = completion.wr_id & 0x7fffffff;
  if (index != received_ || index >= receives_posted_) return fail("a receive completed out of order");
  ++received_;
  if (completion.status != CompletionStatus::success || completion.opcode != CompletionOpcode::recv)
    return fail("a receive failed with status " + std::to_string(static_cast<int>(completion.status)));
  std::vector<uint8_t> bytes = bytes_of(receives[index].sges);
  if (completion.byte_length < grh_bytes || completion.byte_length > bytes.size())
    return fail("a receive has an impossible length");
  bytes.resize(completion.byte_length);
  const auto same = [&](const PlannedSend& send) {
    const bool immediate = send.request.opcode == SendOpcode::send_with_imm;
    return send.payload.size() + grh_bytes == bytes.size() &&
           std::equal(send.payload.begin(), send.payload.end(), bytes.begin() + grh_bytes) &&
           ((completion.flags & kWithImm) != 0) == immediate &&
           (!immediate || completion.immediate_or_rkey == send.request.immediate) &&
           (completion.solicited != 0) == ((send.request.flags & kSolicited) != 0);
  };
  const auto posted_end = sends.begin() + static_cast<std::ptrdiff_t>(sends_posted_);
  if (std::none_of(sends.begin(), posted_end, same)) return fail("a message came that nobody sent");
  if (completion.qpn != to_.qpn()) fail("a receive with a wrong QPN");
  if (grh_bytes == 0) return;
  if ((completion.flags & kWithGrh) == 0) fail("a UD receive without its GRH flag");
  if (completion.source_qpn != from_.qpn()) fail("a UD receive with a wrong source QPN");
  if (!names_addresses(bytes, from_.host().gid, to_.host().gid)) fail("the GRH names other addresses");
}

bool DatagramFlow::is_source_of(const Completion& completion, const std::vector<Sge>& sges) const {
  if (completion.qpn != to_.qpn()) return false;
  if (grh_bytes == 0) return true;
  return completion.source_qpn == from_.qpn() &&
         names_addresses(bytes_of(sges), from_.host().gid, to_.host().gid);
}

void DatagramFlow::on_pooled_receive(Completion completion, const std::vector<Sge>& sges) {
  completion.wr_id = uint64_t{number_} << 32 | kReceiveBit | receives_posted_++;
  receives.push_back({sges, 0});
  on_receive_completion(completion);
}

std::vector<uint8_t> DatagramFlow::bytes_of(const std::vector<Sge>& sges) const {
  std::vector<uint8_t> bytes;
  for (const Sge& sge : sges) {
    const uint8_t* at = to_.host().memory.find(sge.lkey)->at(sge.va);
    bytes.insert(bytes.end(), at, at + sge.length_bytes);
  }
  return bytes;
}

void DatagramFlow::apply(MemoryImage& image) const {
  // Receives were verified at completion. A datagram dropped after its first bytes may have written to one
  // more receive.
  for (const PlannedReceive& receive : receives)
    for (const Sge& sge : receive.sges)
      image.forget(*to_.host().memory.find(sge.lkey), sge.va, sge.length_bytes);
}

void DatagramFlow::check_end() {
  if (error.empty() && lossless && received_ != sends.size())
    fail(std::to_string(sends.size() - received_) + " messages lost on a whole wire");
}

}  // namespace faultline::sim
