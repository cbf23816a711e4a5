// SPDX-License-Identifier: BSD-3-Clause
// The engine as the transport core's port: buffers, transmit bursts, loopback and multicast copies; and the
// measurement of the bare port's limits.
#include <algorithm>
#include <cerrno>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_bulk.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/engine/poll_engine.hpp"
#include "stack/base/clock.hpp"
#include "stack/wire/link/steering.hpp"

namespace faultline::glue {
namespace {

using transport::RxFrame;
using transport::TxFrame;

// A peer that has taken no frames for so long is gone: frames are dropped as by a switch, and the transport's
// timers decide.
constexpr TimeNs kStuckPortNs = 50'000'000;

// A looped-back frame was never on a link: its checksums count as verified.
constexpr uint64_t kOwnFrame = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;

}  // namespace

// Transmits a frame of the link protocols, or drops it.
bool PollEngine::send_one(rte_mbuf* frame) {
  if (send_burst({&frame, 1}) == 1) return true;
  counts_.tx_dropped.add(1);
  rte_pktmbuf_free(frame);
  return false;
}

// Transmits a prefix of `frames` and returns its length; the caller keeps the rest.
size_t PollEngine::send_burst(std::span<rte_mbuf*> frames) {
  if (transmit_link_ == nullptr) return send_to_port(frames);
  put(*transmit_link_, frames);
  return frames.size();
}

// Transmits the due frames of the emulated bad link to the port.
void PollEngine::send_due() {
  std::array<ChaosLink::Held, kBurst> due;
  std::array<rte_mbuf*, kBurst> burst;
  while (const size_t count = transmit_link_->take_due(now_, due)) {
    for (size_t i = 0; i < count; ++i) burst[i] = due[i].frame;
    size_t sent = send_to_port({burst.data(), count});
    if (sent == 0 && gone_port()) {
      rte_pktmbuf_free_bulk(burst.data(), static_cast<unsigned>(count));
      counts_.tx_dropped.add(count);
      sent = count;
    }
    if (sent == count) continue;
    transmit_link_->give_back(std::span(due).subspan(sent, count - sent));
    return;
  }
}

void PollEngine::send_held_frames(TimeNs now) {
  now_ = now;
  send_due();
}

size_t PollEngine::put_on_port(std::span<rte_mbuf*> frames) {
  const size_t sent = port_.transmit(seat_.index, frames);
  if (sent != 0 && attachment_ != nullptr) attachment_->bell().ring(WakeFlag::End::switch_);
  return sent;
}

size_t PollEngine::send_to_port(std::span<rte_mbuf*> frames) {
  size_t sent = 0;
  if (port_usable_) {
    if (capture_ == nullptr) {
      sent = put_on_port(frames);
    } else {
      // One by one, so that only sent frames are captured: a sent frame no longer belongs to the caller.
      for (; sent < frames.size(); ++sent) {
        Capture::Copy copy = capture_->copy(*frames[sent], Capture::Direction::out);
        if (put_on_port(frames.subspan(sent, 1)) != 1) break;
        capture_->keep(std::move(copy));
      }
    }
  }
  counts_.tx_frames.add(sent);
  sent_this_turn_ += sent;
  if (sent != 0) {
    full_since_ = 0;
    last_sent_.store(now_, std::memory_order_relaxed);
  }
  return sent;
}

size_t PollEngine::transmit(std::span<TxFrame> frames) {
  const bool any_group = filter_.any_group();
  const bool offloads = tx_offload_flags_ != 0;
  size_t done = 0;
  while (done < frames.size()) {
    auto* first = static_cast<rte_mbuf*>(frames[done].handle);
    set_length(first, frames[done].length_bytes);
    if (frames[done].loopback && stays_here(first)) {
      if (!loop_back(first)) break;
      ++done;
      continue;
    }
    if (any_group && filter_.to_joined_group(bytes_of(first))) {
      if (!send_to_own_group(first)) break;
      ++done;
      continue;
    }
    std::array<rte_mbuf*, 2 * kBurst> burst;
    size_t count = 0;
    while (count < burst.size() && done + count < frames.size()) {
      const TxFrame& out = frames[done + count];
      auto* frame = static_cast<rte_mbuf*>(out.handle);
      set_length(frame, out.length_bytes);
      if (out.loopback && stays_here(frame)) break;
      if (count != 0 && any_group && filter_.to_joined_group(bytes_of(frame))) break;
      if (offloads) ask_for_checksums(frame);
      burst[count++] = frame;
    }
    const size_t sent = send_or_give_up({burst.data(), count});
    done += sent;
    if (sent < count) break;
  }
  return done;
}

void PollEngine::ask_for_checksums(rte_mbuf* frame) const {
  if (tx_offload_flags_ == 0) return;
  const wire::OffloadLayout layout =
      wire::prepare_checksum_offload(bytes_of(frame), (tx_offload_flags_ & RTE_MBUF_F_TX_UDP_CKSUM) != 0);
  frame->tx_offload = rte_mbuf_tx_offload(layout.layer2_bytes, layout.layer3_bytes, 0, 0, 0, 0, 0);
  frame->ol_flags = layout.ipv6 ? (tx_offload_flags_ & ~RTE_MBUF_F_TX_IP_CKSUM) | RTE_MBUF_F_TX_IPV6
                                : tx_offload_flags_ | RTE_MBUF_F_TX_IPV4;
}

size_t PollEngine::send_or_give_up(std::span<rte_mbuf*> frames) {
  const size_t sent = send_burst(frames);
  if (sent != 0 || !gone_port()) return sent;
  rte_pktmbuf_free_bulk(frames.data(), static_cast<unsigned>(frames.size()));
  counts_.tx_dropped.add(frames.size());
  return frames.size();
}

// Called when the port took no frame. Returns true if no peer is there to take frames; otherwise the state is
// back-pressure.
bool PollEngine::gone_port() {
  if (full_since_ == 0) full_since_ = now_;
  return !port_usable_ || now_ - full_since_ > kStuckPortNs || !port_.link_up();
}

// Every QP that is attached to a group gets a copy (ibv_attach_mcast(3)), from any sender device.
bool PollEngine::send_to_own_group(rte_mbuf* frame) {
  // Copied before transmission: a sent frame no longer belongs to the caller.
  rte_mbuf* copy = rte_pktmbuf_copy(frame, port_.pool(), 0, UINT32_MAX);
  ask_for_checksums(frame);
  if (send_or_give_up({&frame, 1}) == 0) {
    rte_pktmbuf_free(copy);
    return false;
  }
  if (copy == nullptr) return true;
  if (seat_.hand_over != nullptr) {
    copy->ol_flags = kOwnFrame;
    hand_over_copies(copy);
  }
  if (!push_loopback(copy)) {
    counts_.tx_dropped.add(1);
    rte_pktmbuf_free(copy);
  }
  return true;
}

bool PollEngine::stays_here(rte_mbuf* frame) const {
  if (attachment_ == nullptr || attachment_->grant().shared == 0) return true;
  const uint32_t qpn = wire::peek_destination_qpn(bytes_of(frame));
  return qpn >= core_->config().first_qpn && qpn <= core_->config().last_qpn;
}

// Loops a frame back to the core that owns the destination QP. Returns false if that core's ring has no room.
bool PollEngine::loop_back(rte_mbuf* frame) {
  if (seat_.hand_over == nullptr) return push_loopback(frame);
  const uint32_t owner = transport::owner_of(wire::peek_destination_qpn(bytes_of(frame)), seat_.cores);
  if (owner == seat_.index) return push_loopback(frame);
  // Copied before the push: the other core frees the frame.
  Capture::Copy copy =
      capture_ != nullptr ? capture_->copy(*frame, Capture::Direction::out) : Capture::Copy(nullptr);
  frame->ol_flags = kOwnFrame;
  if (seat_.hand_over->push(owner, {&frame, 1}) != 1) return false;
  if (capture_ != nullptr) capture_->keep(std::move(copy));
  counts_.loopback_frames.add(1);
  counts_.handed_over.add(1);
  ++sent_this_turn_;
  return true;
}

bool PollEngine::push_loopback(rte_mbuf* frame) {
  if (loopback_tail_ - loopback_head_ == kLoopbackFrames) return false;
  if (capture_ != nullptr) capture_->take(*frame, Capture::Direction::out);
  frame->ol_flags = kOwnFrame;
  loopback_[loopback_tail_++ % kLoopbackFrames] = frame;
  ++sent_this_turn_;
  return true;
}

size_t PollEngine::deliver_loopback() {
  if (loopback_head_ == loopback_tail_) return 0;
  std::array<RxFrame, kBurst> frames;
  const size_t waiting = std::min<size_t>(loopback_tail_ - loopback_head_, kBurst);
  for (size_t i = 0; i < waiting; ++i) frames[i] = rx_frame_of(loopback_[loopback_head_++ % kLoopbackFrames]);
  counts_.loopback_frames.add(waiting);
  core_->on_packets({frames.data(), waiting}, now_);
  return waiting;
}

size_t PollEngine::allocate(std::span<TxFrame> out) {
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

void PollEngine::free_unsent(std::span<TxFrame> frames) {
  for (const TxFrame& frame : frames) rte_pktmbuf_free(static_cast<rte_mbuf*>(frame.handle));
}

void PollEngine::release(std::span<RxFrame> frames) {
  FrameReturn back;
  for (const RxFrame& frame : frames) back.add(static_cast<rte_mbuf*>(frame.handle));
}

double PollEngine::measure_tx(size_t frame_bytes, unsigned milliseconds) {
  if (frame_bytes < wire::kMinFrameBytes || frame_bytes > kBufferBytes || milliseconds == 0) return -EINVAL;
  if (!port_usable_ || !port_.link_up()) return -ENETDOWN;
  std::array<rte_mbuf*, kBurst> burst;
  uint64_t sent_total = 0;
  const TimeNs start = monotonic_ns();
  const TimeNs end = start + TimeNs{milliseconds} * 1'000'000;
  TimeNs now = start;
  for (; now < end; now = monotonic_ns()) {
    if (rte_pktmbuf_alloc_bulk(port_.pool(), burst.data(), kBurst) != 0) return -ENOMEM;
    for (rte_mbuf* frame : burst) {
      set_length(frame, frame_bytes);
      wire::write_probe_header(bytes_of(frame), addresses_.mac());
    }
    size_t sent = 0;
    // Frames that the port refuses are offered again until the time is over.
    while (sent < kBurst && now < end) {
      sent += put_on_port(std::span(burst).subspan(sent));
      if (sent < kBurst) now = monotonic_ns();
    }
    sent_total += sent;
    rte_pktmbuf_free_bulk(&burst[sent], static_cast<unsigned>(kBurst - sent));
  }
  counts_.tx_frames.add(sent_total);
  return static_cast<double>(sent_total) * 1e9 / static_cast<double>(now - start);
}

double PollEngine::measure_rx(unsigned milliseconds) {
  if (milliseconds == 0) return -EINVAL;
  if (!port_usable_) return -ENETDOWN;
  std::array<rte_mbuf*, kBurst> burst;
  uint64_t received_total = 0;
  TimeNs first = 0;
  TimeNs last = 0;
  const TimeNs end = monotonic_ns() + TimeNs{milliseconds} * 1'000'000;
  for (TimeNs now = monotonic_ns(); now < end; now = monotonic_ns()) {
    const size_t received = port_.receive(0, burst);
    if (received == 0) continue;
    rte_pktmbuf_free_bulk(burst.data(), static_cast<unsigned>(received));
    // The first burst only starts the clock.
    if (first == 0)
      first = now;
    else
      received_total += received;
    last = now;
  }
  counts_.rx_frames.add(received_total);
  if (last == first) return 0;
  return static_cast<double>(received_total) * 1e9 / static_cast<double>(last - first);
}

}  // namespace faultline::glue
