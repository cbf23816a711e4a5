// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/host/nic.hpp"

#include <algorithm>
#include <cstring>

#include "apps/sim/host/address.hpp"
#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/layout.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::fabric {
namespace {

/// Fills what the fabric needs to know of a frame, from its addresses and its UDP source port. The core
/// writes IPv4 without options and without a VLAN tag, as its paths are.
void read_addresses(Frame& frame) {
  const uint8_t* const ip = frame.bytes.data() + wire::kEthernetBytes;
  const uint32_t source = wire::load_be32(ip + wire::kIpv4SourceAt);
  const uint32_t destination = wire::load_be32(ip + wire::kIpv4DestinationAt);
  const uint16_t port = wire::load_be16(ip + wire::kIpv4Bytes);
  frame.destination = destination - kNetwork - 1;
  // Prime factors, so that neighbouring addresses and ports do not cancel out.
  frame.flow_hash = source * 0x9e3779b1U ^ destination * 0x85ebca77U ^ port * 0xc2b2ae3dU;
}

}  // namespace

uint8_t* BufferPool::take() {
  if (free_.empty()) {
    buffers_.push_back(std::make_unique<uint8_t[]>(wire::kMaxFrameBytes));
    free_.push_back(buffers_.back().get());
  }
  uint8_t* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

size_t Nic::allocate(std::span<transport::TxFrame> out) {
  if (out.empty()) return 0;
  if (fabric_.ring_frames(host_) + with_core_ >= ring_frames_) {
    was_full_ = true;
    return 0;
  }
  ++with_core_;
  uint8_t* const buffer = buffers_.take();
  out[0] = {.data = buffer,
            .capacity_bytes = wire::kMaxFrameBytes,
            .length_bytes = 0,
            .loopback = false,
            .handle = buffer};
  return 1;
}

size_t Nic::transmit(std::span<transport::TxFrame> frames) {
  for (const transport::TxFrame& sent : frames) {
    Frame& frame = fabric_.frames().take();
    frame.length_bytes = sent.length_bytes;
    std::memcpy(frame.bytes.data(), sent.data, frame.kept_bytes());
    read_addresses(frame);
    fabric_.inject(host_, frame, now_ps_);
  }
  free_unsent(frames);
  return frames.size();
}

void Nic::free_unsent(std::span<transport::TxFrame> frames) {
  for (const transport::TxFrame& frame : frames) {
    --with_core_;
    buffers_.give_back(static_cast<uint8_t*>(frame.handle));
  }
}

void Nic::release(std::span<transport::RxFrame> frames) {
  for (const transport::RxFrame& frame : frames)
    fabric_.frames().give_back(*static_cast<Frame*>(frame.handle));
}

transport::RxFrame Nic::received(Frame& frame) {
  return {.data = frame.bytes.data(),
          .length_bytes = frame.length_bytes,
          .rx_checks = wire::rx_checks(true, true),
          .handle = &frame};
}

}  // namespace faultline::fabric
