// SPDX-License-Identifier: BSD-3-Clause
// The burst-level port that a transport core sends to and is fed from. One virtual call a burst. Owner: the
// core's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace faultline::transport {

/// A received frame, Ethernet to ICRC, contiguous. The buffer is the core's from on_packets() until it gives
/// it back with Port::release (a parked packet is simply given back later).
struct RxFrame {
  const uint8_t* data = nullptr;
  uint32_t length_bytes = 0;
  uint32_t rx_checks = 0;  ///< wire::RxChecks bits
  void* handle = nullptr;
};

/// A transmit buffer to write a frame into, in place.
struct TxFrame {
  uint8_t* data = nullptr;
  uint32_t capacity_bytes = 0;
  uint32_t length_bytes = 0;  ///< set by the core
  bool loopback = false;      ///< set by the core: for this device itself, not for the wire
  void* handle = nullptr;
};

class Port {
 public:
  virtual ~Port() = default;

  /// Hands out empty buffers of at least wire::kMaxFrameBytes (or the port's MTU); fewer than asked for when
  /// the pool is short.
  [[nodiscard]] virtual size_t allocate(std::span<TxFrame> out) = 0;

  /// Sends a prefix of `frames` in order and takes those buffers; returns its length. The rest stay the
  /// caller's, to be sent first next time.
  [[nodiscard]] virtual size_t transmit(std::span<TxFrame> frames) = 0;

  /// Gives back buffers that were allocated and not sent.
  virtual void free_unsent(std::span<TxFrame> frames) = 0;

  /// Gives back received buffers.
  virtual void release(std::span<RxFrame> frames) = 0;
};

}  // namespace faultline::transport
