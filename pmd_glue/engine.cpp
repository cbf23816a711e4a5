// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine.hpp"

#include <algorithm>
#include <cerrno>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <time.h>

#include "pmd_glue/eal.hpp"
#include "stack/wire/frame.hpp"
#include "stack/wire/packet.hpp"

namespace faultline::glue {
namespace {

using transport::RxFrame;
using transport::TimeNs;
using transport::TxFrame;

// A peer that has stopped taking frames for so long is gone: frames are dropped as a switch would, and the
// transport's own timers decide.
constexpr TimeNs kStuckPortNs = 50'000'000;

transport::CoreConfig core_config(const Config& config, const DeviceConfig& device,
                                  const EthernetPort& port) {
  transport::CoreConfig core = config.core;
  core.max_path_mtu_bytes = wire::largest_path_mtu_bytes(port_mtu_bytes(device), true);
  core.wire_checksums = 0;
  if (!port.offloads_ipv4_checksum())
    core.wire_checksums |= static_cast<uint8_t>(wire::Checksums::ip_in_software);
  if (config.udp_checksum && !port.offloads_udp_checksum())
    core.wire_checksums |= static_cast<uint8_t>(wire::Checksums::udp_in_software);
  return core;
}

uint32_t rx_checks_of(uint64_t ol_flags) {
  uint32_t checks = wire::kNothingVerified;
  if ((ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_GOOD)
    checks |= wire::kIpChecksumVerified;
  if ((ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD)
    checks |= wire::kUdpChecksumVerified;
  return checks;
}

std::span<uint8_t> bytes_of(rte_mbuf* frame) {
  return {rte_pktmbuf_mtod(frame, uint8_t*), frame->data_len};
}

void set_length(rte_mbuf* frame, size_t length_bytes) {
  frame->data_len = static_cast<uint16_t>(length_bytes);
  frame->pkt_len = static_cast<uint32_t>(length_bytes);
}

RxFrame rx_frame_of(rte_mbuf* frame, uint32_t checks) {
  return {rte_pktmbuf_mtod(frame, const uint8_t*), frame->data_len, checks, frame};
}

}  // namespace

TimeNs monotonic_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<TimeNs>(time.tv_sec) * 1'000'000'000 + static_cast<TimeNs>(time.tv_nsec);
}

rte_mbuf* make_contiguous(rte_mbuf* frame, rte_mempool* pool) {
  if (frame->nb_segs == 1) return frame;
  if (rte_pktmbuf_linearize(frame) == 0) return frame;
  // The first buffer is too small for the rest; another pool's may hold it.
  rte_mbuf* copy = rte_pktmbuf_alloc(pool);
  const uint32_t length_bytes = frame->pkt_len;
  if (copy != nullptr && length_bytes <= rte_pktmbuf_tailroom(copy)) {
    uint8_t* to = rte_pktmbuf_mtod(copy, uint8_t*);
    for (const rte_mbuf* part = frame; part != nullptr; part = part->next)
      to = std::copy_n(rte_pktmbuf_mtod(part, const uint8_t*), part->data_len, to);
    set_length(copy, length_bytes);
    copy->ol_flags = frame->ol_flags;
  } else {
    rte_pktmbuf_free(copy);
    copy = nullptr;
  }
  rte_pktmbuf_free(frame);
  return copy;
}

Engine::Engine(const Config& config, const DeviceConfig& device, const AddressTable& addresses,
               EthernetPort& port, odp::EngineSession& session, Capture* capture)
    : port_(port),
      session_(session),
      capture_(capture),
      addresses_(addresses),
      filter_(addresses.mac(), addresses.vlan(), addresses.gids()),
      neighbours_(addresses),
      now_(monotonic_ns()),
      core_(std::make_unique<transport::Core>(core_config(config, device, port), session,
                                              static_cast<transport::Port&>(*this),
                                              static_cast<transport::EventSink*>(this))) {
  if (port.offloads_ipv4_checksum()) tx_offload_flags_ |= RTE_MBUF_F_TX_IP_CKSUM;
  if (port.offloads_udp_checksum()) tx_offload_flags_ |= RTE_MBUF_F_TX_UDP_CKSUM;
  port_usable_ = port.started();
  if (device.port.kind == PortKind::memif) gate_.emplace(turns_);
}

Engine::~Engine() {
  core_.reset();
  for (; loopback_head_ != loopback_tail_; ++loopback_head_)
    rte_pktmbuf_free(loopback_[loopback_head_ % kLoopbackFrames]);
}

bool Engine::turn() {
  session_.enter();
  now_ = monotonic_ns();
  last_turn_.store(now_, std::memory_order_relaxed);
  sent_this_turn_ = 0;

  size_t moved = deliver_loopback();
  if (port_usable_) moved += receive();
  core_->poll(now_);
  if (now_ >= neighbours_.next_deadline()) ask_neighbours();

  moved += sent_this_turn_;
  return moved != 0;
}

size_t Engine::receive() {
  std::array<rte_mbuf*, kBurst> burst;
  const size_t received = rte_eth_rx_burst(port_.id(), 0, burst.data(), kBurst);
  if (received == 0) return 0;
  counts_.rx_frames.add(received);

  std::array<RxFrame, kBurst> roce;
  size_t roce_frames = 0;
  for (size_t i = 0; i < received; ++i) {
    rte_mbuf* frame = burst[i];
    if (i + 1 < received) __builtin_prefetch(rte_pktmbuf_mtod(burst[i + 1], const void*));
    if (capture_ != nullptr) capture_->take(*frame, Capture::Direction::in);
    if (frame->nb_segs != 1) {
      frame = make_contiguous(frame, port_.pool());
      if (frame == nullptr) {
        counts_.other_dropped.add(1);
        continue;
      }
      counts_.linearized_frames.add(1);
    }
    const wire::FrameKind kind = wire::classify(bytes_of(frame));
    if (!admit(frame, kind)) continue;
    if (kind == wire::FrameKind::roce)
      roce[roce_frames++] = rx_frame_of(frame, rx_checks_of(frame->ol_flags));
    else
      handle_link_frame(frame, kind);
  }
  if (roce_frames != 0) core_->on_packets({roce.data(), roce_frames}, now_);
  return received;
}

// False where the frame is another's; it is freed then.
bool Engine::admit(rte_mbuf* frame, wire::FrameKind kind) {
  switch (filter_.admit(bytes_of(frame), kind)) {
    case wire::Admission::accepted:
      return true;
    case wire::Admission::wrong_vlan:
      counts_.wrong_vlan.add(1);
      break;
    case wire::Admission::wrong_address:
      counts_.wrong_address.add(1);
      break;
  }
  rte_pktmbuf_free(frame);
  return false;
}

size_t Engine::deliver_loopback() {
  if (loopback_head_ == loopback_tail_) return 0;
  std::array<RxFrame, kBurst> frames;
  const size_t waiting = std::min<size_t>(loopback_tail_ - loopback_head_, kBurst);
  for (size_t i = 0; i < waiting; ++i) {
    // They were never on a wire: the checksums are whatever the port would have made of them.
    frames[i] = rx_frame_of(loopback_[loopback_head_++ % kLoopbackFrames],
                            wire::kIpChecksumVerified | wire::kUdpChecksumVerified);
  }
  counts_.loopback_frames.add(waiting);
  core_->on_packets({frames.data(), waiting}, now_);
  return waiting;
}

bool Engine::push_loopback(rte_mbuf* frame) {
  if (loopback_tail_ - loopback_head_ == kLoopbackFrames) return false;
  if (capture_ != nullptr) capture_->take(*frame, Capture::Direction::out);
  loopback_[loopback_tail_++ % kLoopbackFrames] = frame;
  ++sent_this_turn_;
  return true;
}

template <typename Write>
bool Engine::send_written(Write write) {
  rte_mbuf* frame = rte_pktmbuf_alloc(port_.pool());
  if (frame == nullptr) return false;
  const size_t length_bytes =
      write(std::span<uint8_t>{rte_pktmbuf_mtod(frame, uint8_t*), rte_pktmbuf_tailroom(frame)});
  if (length_bytes == 0) {
    rte_pktmbuf_free(frame);
    return false;
  }
  set_length(frame, length_bytes);
  return send_one(frame);
}

void Engine::handle_link_frame(rte_mbuf* frame, wire::FrameKind kind) {
  wire::NeighbourMessage message;
  switch (kind) {
    case wire::FrameKind::arp:
      handle_arp(frame);
      break;
    case wire::FrameKind::ipv6_other:
      if (!wire::parse_neighbour_message(bytes_of(frame), message)) return handle_echo(frame);
      handle_neighbour_message(message);
      break;
    case wire::FrameKind::ipv4_other:
      return handle_echo(frame);
    default:
      counts_.other_dropped.add(1);
      break;
  }
  rte_pktmbuf_free(frame);
}

void Engine::handle_arp(rte_mbuf* frame) {
  counts_.arp_in.add(1);
  if (send_written([&](std::span<uint8_t> to) { return neighbours_.on_arp(bytes_of(frame), now_, to); }))
    counts_.arp_out.add(1);
}

void Engine::handle_neighbour_message(const wire::NeighbourMessage& message) {
  counts_.nd_in.add(1);
  if (send_written(
          [&](std::span<uint8_t> to) { return neighbours_.on_neighbour_message(message, now_, to); }))
    counts_.nd_out.add(1);
}

// The reply is written over the request.
void Engine::handle_echo(rte_mbuf* frame) {
  const size_t length_bytes = wire::answer_echo(bytes_of(frame), addresses_.mac(), addresses_.gids());
  if (length_bytes == 0) {
    counts_.other_dropped.add(1);
    rte_pktmbuf_free(frame);
    return;
  }
  counts_.icmp_in.add(1);
  set_length(frame, length_bytes);
  frame->ol_flags = 0;
  if (send_one(frame)) counts_.icmp_out.add(1);
}

void Engine::ask_neighbours() {
  bool ipv6 = false;
  const auto write = [&](std::span<uint8_t> to) { return neighbours_.poll(now_, to, ipv6); };
  if (send_written(write)) (ipv6 ? counts_.nd_out : counts_.arp_out).add(1);
}

// A frame of the glue's own: sent now or dropped.
bool Engine::send_one(rte_mbuf* frame) {
  if (send_burst({&frame, 1}) == 1) return true;
  counts_.tx_dropped.add(1);
  rte_pktmbuf_free(frame);
  return false;
}

// Frames that the port took; those before them in the span are taken, the rest are still the caller's.
size_t Engine::send_burst(std::span<rte_mbuf*> frames) {
  size_t sent = 0;
  if (port_usable_) {
    if (capture_ == nullptr) {
      sent = rte_eth_tx_burst(port_.id(), 0, frames.data(), static_cast<uint16_t>(frames.size()));
    } else {
      // One by one, so that just what was sent is captured: the frame is not ours any more once it is sent.
      for (; sent < frames.size(); ++sent) {
        Capture::Copy copy = capture_->copy(*frames[sent], Capture::Direction::out);
        if (rte_eth_tx_burst(port_.id(), 0, &frames[sent], 1) != 1) break;
        capture_->keep(std::move(copy));
      }
    }
  }
  counts_.tx_frames.add(sent);
  sent_this_turn_ += sent;
  if (sent != 0) full_since_ = 0;
  return sent;
}

// Nothing was taken. That is back-pressure, unless nobody is there to take it.
void Engine::give_up_on_full_port(std::span<rte_mbuf*> frames, size_t& sent) {
  if (full_since_ == 0) full_since_ = now_;
  const bool gone = !port_usable_ || now_ - full_since_ > kStuckPortNs || !port_.link_up();
  if (!gone) return;
  rte_pktmbuf_free_bulk(frames.data(), static_cast<unsigned>(frames.size()));
  counts_.tx_dropped.add(frames.size());
  sent = frames.size();
}

size_t Engine::transmit(std::span<TxFrame> frames) {
  size_t done = 0;
  while (done < frames.size()) {
    if (frames[done].loopback) {
      auto* frame = static_cast<rte_mbuf*>(frames[done].handle);
      set_length(frame, frames[done].length_bytes);
      if (!push_loopback(frame)) break;
      ++done;
      continue;
    }
    std::array<rte_mbuf*, 2 * kBurst> burst;
    size_t count = 0;
    while (count < burst.size() && done + count < frames.size() && !frames[done + count].loopback) {
      const TxFrame& out = frames[done + count];
      auto* frame = static_cast<rte_mbuf*>(out.handle);
      set_length(frame, out.length_bytes);
      if (tx_offload_flags_ != 0) {
        const wire::OffloadLayout layout = wire::prepare_checksum_offload(
            bytes_of(frame), (tx_offload_flags_ & RTE_MBUF_F_TX_UDP_CKSUM) != 0);
        frame->tx_offload = rte_mbuf_tx_offload(layout.layer2_bytes, layout.layer3_bytes, 0, 0, 0, 0, 0);
        frame->ol_flags = layout.ipv6 ? (tx_offload_flags_ & ~RTE_MBUF_F_TX_IP_CKSUM) | RTE_MBUF_F_TX_IPV6
                                      : tx_offload_flags_ | RTE_MBUF_F_TX_IPV4;
      }
      burst[count++] = frame;
    }
    size_t sent = send_burst({burst.data(), count});
    if (sent == 0) give_up_on_full_port({burst.data(), count}, sent);
    done += sent;
    if (sent < count) break;
  }
  return done;
}

size_t Engine::allocate(std::span<TxFrame> out) {
  std::array<rte_mbuf*, 2 * kBurst> mbufs;
  size_t done = 0;
  while (done < out.size()) {
    size_t count = std::min(out.size() - done, mbufs.size());
    // All or nothing: halve until the pool has as many.
    while (count != 0 &&
           rte_pktmbuf_alloc_bulk(port_.pool(), mbufs.data(), static_cast<unsigned>(count)) != 0)
      count /= 2;
    if (count == 0) break;
    for (size_t i = 0; i < count; ++i)
      out[done + i] = {rte_pktmbuf_mtod(mbufs[i], uint8_t*), rte_pktmbuf_tailroom(mbufs[i]), 0, false,
                       mbufs[i]};
    done += count;
  }
  return done;
}

void Engine::free_unsent(std::span<TxFrame> frames) {
  for (const TxFrame& frame : frames) rte_pktmbuf_free(static_cast<rte_mbuf*>(frame.handle));
}

void Engine::release(std::span<RxFrame> frames) {
  std::array<rte_mbuf*, 2 * kBurst> mbufs;
  for (size_t done = 0; done < frames.size();) {
    const size_t count = std::min(frames.size() - done, mbufs.size());
    for (size_t i = 0; i < count; ++i) mbufs[i] = static_cast<rte_mbuf*>(frames[done + i].handle);
    rte_pktmbuf_free_bulk(mbufs.data(), static_cast<unsigned>(count));
    done += count;
  }
}

void Engine::on_qp_event(uint32_t qpn, void* user, transport::AsyncEvent event) {
  if (transport::EventSink* sink = events_.load(std::memory_order_acquire))
    sink->on_qp_event(qpn, user, event);
}

void Engine::on_cq_event(transport::CompletionQueue* cq, transport::AsyncEvent event) {
  if (transport::EventSink* sink = events_.load(std::memory_order_acquire)) sink->on_cq_event(cq, event);
}

void Engine::on_completion(transport::CompletionQueue* cq) {
  if (transport::EventSink* sink = events_.load(std::memory_order_acquire)) sink->on_completion(cq);
}

void Engine::on_srq_event(transport::SharedReceiveQueue* srq, transport::AsyncEvent event) {
  if (transport::EventSink* sink = events_.load(std::memory_order_acquire)) sink->on_srq_event(srq, event);
}

void Engine::on_device_event(transport::AsyncEvent event) {
  if (transport::EventSink* sink = events_.load(std::memory_order_acquire)) sink->on_device_event(event);
}

double Engine::measure_tx(size_t frame_bytes, unsigned milliseconds) {
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
    // What the port does not take at once is offered again until the time is over.
    while (sent < kBurst && now < end) {
      sent += rte_eth_tx_burst(port_.id(), 0, &burst[sent], static_cast<uint16_t>(kBurst - sent));
      if (sent < kBurst) now = monotonic_ns();
    }
    sent_total += sent;
    rte_pktmbuf_free_bulk(&burst[sent], static_cast<unsigned>(kBurst - sent));
  }
  counts_.tx_frames.add(sent_total);
  return static_cast<double>(sent_total) * 1e9 / static_cast<double>(now - start);
}

double Engine::measure_rx(unsigned milliseconds) {
  if (milliseconds == 0) return -EINVAL;
  if (!port_usable_) return -ENETDOWN;
  std::array<rte_mbuf*, kBurst> burst;
  uint64_t received_total = 0;
  TimeNs first = 0;
  TimeNs last = 0;
  const TimeNs end = monotonic_ns() + TimeNs{milliseconds} * 1'000'000;
  for (TimeNs now = monotonic_ns(); now < end; now = monotonic_ns()) {
    const size_t received = rte_eth_rx_burst(port_.id(), 0, burst.data(), kBurst);
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
