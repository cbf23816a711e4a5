// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/world/port.hpp"

#include <algorithm>
#include <cstring>

#include "stack/wire/packet/headers.hpp"

namespace faultline::sim {

namespace {

void* handle_of(uint64_t number) {
  return reinterpret_cast<void*>(number);
}
uint64_t number_of(const void* handle) {
  return reinterpret_cast<uint64_t>(handle);
}

}  // namespace

SimPort::SimPort(const PortScript& script, Random random, Wire wire)
    : script_(script), random_(random), wire_(std::move(wire)), buffers_(script.tx_buffers) {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i].bytes = std::make_unique<uint8_t[]>(wire::kMaxFrameBytes);
    free_.push_back(i);
  }
}

size_t SimPort::allocate(std::span<transport::TxFrame> out) {
  size_t count = std::min(out.size(), free_.size());
  if (random_.chance(script_.short_allocate_permille)) count = random_.below(count + 1);
  for (size_t i = 0; i < count; ++i) {
    const size_t index = free_.back();
    free_.pop_back();
    buffers_[index].holder = Holder::core;
    ++with_core_;
    std::memset(buffers_[index].bytes.get(), 0xa5, wire::kMaxFrameBytes);
    out[i] = {buffers_[index].bytes.get(), wire::kMaxFrameBytes, 0, false, handle_of(index + 1)};
  }
  return count;
}

size_t SimPort::transmit(std::span<transport::TxFrame> frames) {
  size_t count = std::min(frames.size(), script_.tx_ring - std::min<size_t>(script_.tx_ring, ring_.size()));
  if (random_.chance(script_.short_transmit_permille)) count = random_.below(count + 1);
  for (const transport::TxFrame& frame : frames.first(count)) {
    const size_t index = number_of(frame.handle) - 1;
    if (index >= buffers_.size() || buffers_[index].holder != Holder::core ||
        frame.data != buffers_[index].bytes.get() || frame.length_bytes > wire::kMaxFrameBytes) {
      misuse("transmit of a buffer that the core does not hold");
      continue;
    }
    buffers_[index].holder = Holder::ring;
    --with_core_;
    ring_.emplace_back(wire_(Frame(frame.data, frame.data + frame.length_bytes), frame.loopback), index);
  }
  return count;
}

void SimPort::to_pool(size_t index) {
  buffers_[index].holder = Holder::pool;
  free_.push_back(index);
}

void SimPort::free_unsent(std::span<transport::TxFrame> frames) {
  for (const transport::TxFrame& frame : frames) {
    const size_t index = number_of(frame.handle) - 1;
    if (index >= buffers_.size() || buffers_[index].holder != Holder::core) {
      misuse("free_unsent of a buffer that the core does not hold");
      continue;
    }
    --with_core_;
    to_pool(index);
  }
}

void SimPort::release(std::span<transport::RxFrame> frames) {
  for (const transport::RxFrame& frame : frames)
    if (received_.erase(number_of(frame.handle)) == 0)
      misuse("release of a frame that the core does not hold");
}

void SimPort::advance(TimeNs now) {
  now_ = now;
  while (!ring_.empty() && ring_.front().first <= now) {
    to_pool(ring_.front().second);
    ring_.pop_front();
  }
}

bool SimPort::receive(const Frame& frame, uint32_t rx_checks, transport::RxFrame& out) {
  if (received_.size() >= script_.rx_buffers) {
    ++rx_no_buffer;
    return false;
  }
  auto bytes = std::make_unique<uint8_t[]>(frame.size());
  std::memcpy(bytes.get(), frame.data(), frame.size());
  out = {bytes.get(), static_cast<uint32_t>(frame.size()), rx_checks, handle_of(next_receive_)};
  received_.emplace(next_receive_++, std::move(bytes));
  return true;
}

}  // namespace faultline::sim
