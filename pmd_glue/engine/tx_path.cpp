// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/tx_path.hpp"

#include <algorithm>
#include <utility>

#include <rte_mbuf.h>

#include "pmd_glue/eal/frame_bulk.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "stack/transport/core/core.hpp"
#include "stack/wire/link/steering.hpp"

namespace faultline::glue {
namespace {

using transport::RxFrame;
using transport::TxFrame;

// A peer that has taken no frames for so long is gone: frames are dropped as by a switch, and the transport's
// timers decide.
constexpr TimeNs kStuckPortNs = 50'000'000;
// A full port is not asked more often whether its link is up: this costs a PMD an access to its device.
constexpr TimeNs kLinkLooksNs = 1'000'000;
// Of the time between two attempts no more counts: the process may have been stopped meanwhile.
constexpr TimeNs kMostBetweenNs = 10'000'000;

// A looped-back frame was never on a link: its checksums count as verified.
constexpr uint64_t kOwnFrame = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;

bool shares_address(const WireAttachment* attachment) {
  return attachment != nullptr && attachment->grant().shared != 0;
}

}  // namespace

TxPath::TxPath(EthernetPort& port, const CoreSlot& slot, WireAttachment* attachment,
               const wire::AddressFilter& filter, Capture* capture, std::unique_ptr<ChaosLink> link,
               PortCounts& counts)
    : port_(port),
      slot_(slot),
      shares_address_(shares_address(attachment)),
      first_qpn_(shares_address_ ? attachment->grant().first_qpn() : 0),
      last_qpn_(shares_address_ ? attachment->grant().last_qpn() : 0),
      filter_(filter),
      capture_(capture),
      link_(std::move(link)),
      counts_(counts),
      port_usable_(port.started()) {
  if (port.offloads_ipv4_checksum()) offload_flags_ |= RTE_MBUF_F_TX_IP_CKSUM;
  if (port.offloads_udp_checksum()) offload_flags_ |= RTE_MBUF_F_TX_UDP_CKSUM;
}

TxPath::~TxPath() {
  for (; loopback_head_ != loopback_tail_; ++loopback_head_)
    rte_pktmbuf_free(loopback_[loopback_head_ % kLoopbackFrames]);
}

// --- Stage 1: route ---

size_t TxPath::transmit(std::span<TxFrame> frames) {
  const bool any_group = filter_.any_group();
  const bool offloads = offload_flags_ != 0;
  size_t done = 0;
  while (done < frames.size()) {
    auto* first = static_cast<rte_mbuf*>(frames[done].handle);
    set_length(first, frames[done].length_bytes);
    if (frames[done].loopback && is_for_this_process(first)) {
      if (!route_to_loopback(first)) break;
      ++done;
      continue;
    }
    if (any_group && filter_.to_joined_group(bytes_of(first))) {
      if (!route_to_group(first)) break;
      ++done;
      continue;
    }
    std::array<rte_mbuf*, 2 * kBurst> burst;
    // A full port is tried with one frame: to prepare the others costs more than the attempt.
    const size_t most = awaits_room_ ? 1 : burst.size();
    size_t count = 0;
    while (count < most && done + count < frames.size()) {
      const TxFrame& out = frames[done + count];
      auto* frame = static_cast<rte_mbuf*>(out.handle);
      set_length(frame, out.length_bytes);
      if (out.loopback && is_for_this_process(frame)) break;
      if (count != 0 && any_group && filter_.to_joined_group(bytes_of(frame))) break;
      if (offloads) request_checksum_offload(frame);
      burst[count++] = frame;
    }
    const size_t sent = route_to_port({burst.data(), count});
    done += sent;
    if (sent < count) break;
  }
  return done;
}

size_t TxPath::route_to_port(std::span<rte_mbuf*> frames) {
  const size_t sent = impair(frames);
  return sent != 0 ? sent : give_up(frames);
}

// Every QP that is attached to a group gets a copy (ibv_attach_mcast(3)), from any sender device.
bool TxPath::route_to_group(rte_mbuf* frame) {
  // Copied before transmission: a sent frame no longer belongs to the caller.
  rte_mbuf* copy = rte_pktmbuf_copy(frame, port_.pool(), 0, UINT32_MAX);
  request_checksum_offload(frame);
  if (route_to_port({&frame, 1}) == 0) {
    rte_pktmbuf_free(copy);
    return false;
  }
  if (copy == nullptr) return true;
  if (slot_.hand_over != nullptr) {
    copy->ol_flags = kOwnFrame;
    slot_.hand_over->push_copies(slot_.index, copy, port_.pool(), counts_);
  }
  if (!push_loopback(copy)) {
    counts_.tx_dropped.add(1);
    rte_pktmbuf_free(copy);
  }
  return true;
}

bool TxPath::is_for_this_process(rte_mbuf* frame) const {
  if (!shares_address_) return true;
  const uint32_t qpn = wire::peek_destination_qpn(bytes_of(frame));
  return qpn >= first_qpn_ && qpn <= last_qpn_;
}

// Loops a frame back to the core that owns the destination QP. Returns false if that core's ring has no room.
bool TxPath::route_to_loopback(rte_mbuf* frame) {
  if (slot_.hand_over == nullptr) return push_loopback(frame);
  const uint32_t owner = transport::owner_of(wire::peek_destination_qpn(bytes_of(frame)), slot_.cores);
  if (owner == slot_.index) return push_loopback(frame);
  // Before the push: the other core frees the frame.
  if (capture_ != nullptr) capture_->attach(*frame, Capture::Direction::out);
  frame->ol_flags = kOwnFrame;
  if (slot_.hand_over->push(owner, {&frame, 1}) != 1) {
    if (capture_ != nullptr) static_cast<void>(Capture::detach(*frame));
    return false;
  }
  counts_.loopback_frames.add(1);
  counts_.handed_over.add(1);
  ++sent_since_begin_;
  return true;
}

bool TxPath::push_loopback(rte_mbuf* frame) {
  if (loopback_tail_ - loopback_head_ == kLoopbackFrames) return false;
  if (capture_ != nullptr) capture_->attach(*frame, Capture::Direction::out);
  frame->ol_flags = kOwnFrame;
  loopback_[loopback_tail_++ % kLoopbackFrames] = frame;
  ++sent_since_begin_;
  return true;
}

size_t TxPath::take_loopback(std::span<RxFrame> out) {
  const size_t taken = std::min<size_t>(loopback_tail_ - loopback_head_, out.size());
  for (size_t i = 0; i < taken; ++i) out[i] = rx_frame_of(loopback_[loopback_head_++ % kLoopbackFrames]);
  counts_.loopback_frames.add(taken);
  return taken;
}

void TxPath::request_checksum_offload(rte_mbuf* frame) const {
  if (offload_flags_ == 0) return;
  const wire::OffloadLayout layout = wire::prepare_checksum_offload(
      bytes_of(frame), {.ipv4 = (offload_flags_ & RTE_MBUF_F_TX_IP_CKSUM) != 0,
                        .udp = (offload_flags_ & RTE_MBUF_F_TX_UDP_CKSUM) != 0});
  frame->tx_offload = rte_mbuf_tx_offload(layout.layer2_bytes, layout.layer3_bytes, 0, 0, 0, 0, 0);
  frame->ol_flags = layout.ipv6 ? (offload_flags_ & ~RTE_MBUF_F_TX_IP_CKSUM) | RTE_MBUF_F_TX_IPV6
                                : offload_flags_ | RTE_MBUF_F_TX_IPV4;
}

// --- Stage 2: impair ---

bool TxPath::enter_own(rte_mbuf* frame) {
  if (impair({&frame, 1}) == 1) return true;
  counts_.tx_dropped.add(1);
  rte_pktmbuf_free(frame);
  return false;
}

size_t TxPath::impair(std::span<rte_mbuf*> frames) {
  if (link_ == nullptr) return capture(frames);
  link_->put(frames, now_, counts_);
  return frames.size();
}

void TxPath::release_due() {
  std::array<ChaosLink::Held, kBurst> due;
  std::array<rte_mbuf*, kBurst> burst;
  while (const size_t count = link_->take_due(now_, due)) {
    for (size_t i = 0; i < count; ++i) burst[i] = due[i].frame;
    const std::span<rte_mbuf*> frames(burst.data(), count);
    size_t sent = capture(frames);
    if (sent == 0) sent = give_up(frames);
    if (sent == count) continue;
    link_->give_back(std::span(due).subspan(sent, count - sent));
    return;
  }
}

// --- Stage 3: capture ---

size_t TxPath::capture(std::span<rte_mbuf*> frames) {
  if (capture_ == nullptr) return put(frames);
  // One by one, so that only sent frames are captured: a sent frame no longer belongs to the caller.
  size_t sent = 0;
  for (; sent < frames.size(); ++sent) {
    Capture::Copy copy = capture_->copy(*frames[sent], Capture::Direction::out);
    if (put(frames.subspan(sent, 1)) != 1) break;
    capture_->keep(std::move(copy));
  }
  return sent;
}

// --- Stage 4: put ---

size_t TxPath::put(std::span<rte_mbuf*> frames) {
  if (!port_usable_) return 0;
  const size_t sent = port_.transmit(slot_.index, frames);
  if (sent == 0) return 0;
  counts_.tx_frames.add(sent);
  sent_since_begin_ += sent;
  last_refusal_ = 0;
  awaits_room_ = false;
  last_sent_.store(now_, std::memory_order_relaxed);
  return sent;
}

size_t TxPath::give_up(std::span<rte_mbuf*> frames) {
  refused_ns_ = last_refusal_ == 0 ? 0 : refused_ns_ + std::min(now_ - last_refusal_, kMostBetweenNs);
  last_refusal_ = now_;
  if (port_usable_ && now_ - last_link_look_ >= kLinkLooksNs) {
    last_link_look_ = now_;
    link_was_up_ = port_.link_up();
  }
  awaits_room_ = port_usable_ && refused_ns_ <= kStuckPortNs && link_was_up_;
  if (awaits_room_) return 0;
  rte_pktmbuf_free_bulk(frames.data(), static_cast<unsigned>(frames.size()));
  counts_.tx_dropped.add(frames.size());
  return frames.size();
}

// --- Buffers ---

size_t TxPath::allocate(std::span<TxFrame> out) {
  std::array<rte_mbuf*, 2 * kBurst> mbufs;
  size_t done = 0;
  while (done < out.size()) {
    size_t count = std::min(out.size() - done, mbufs.size());
    // take_frames() takes all or nothing: halve until the pool has as many.
    while (count != 0 && !take_frames(port_.pool(), std::span(mbufs).first(count))) count /= 2;
    if (count == 0) break;
    for (size_t i = 0; i < count; ++i)
      out[done + i] = {rte_pktmbuf_mtod(mbufs[i], uint8_t*), capacity_of(mbufs[i]), 0, false, mbufs[i]};
    done += count;
  }
  return done;
}

void TxPath::free_unsent(std::span<TxFrame> frames) {
  for (const TxFrame& frame : frames) rte_pktmbuf_free(static_cast<rte_mbuf*>(frame.handle));
}

void TxPath::release(std::span<RxFrame> frames) {
  FrameReturn back;
  for (const RxFrame& frame : frames) back.add(static_cast<rte_mbuf*>(frame.handle));
}

}  // namespace faultline::glue
