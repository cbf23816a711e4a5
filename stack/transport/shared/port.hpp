// SPDX-License-Identifier: BSD-3-Clause
// Burst-level port between a transport core and the NIC or virtual network. Each call handles a burst, so a
// burst costs one virtual call. Owner: the core's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace faultline::transport {

/// A received frame from Ethernet header to ICRC, contiguous. The core owns the buffer from on_packets()
/// until it calls Port::release. It releases a parked packet's buffer later in the same way.
struct RxFrame {
  const uint8_t* data = nullptr;
  uint32_t length_bytes = 0;
  uint32_t rx_checks = 0;  ///< wire::RxChecks bits
  void* handle = nullptr;
};

/// A transmit buffer; the core writes the frame in place.
struct TxFrame {
  uint8_t* data = nullptr;
  uint32_t capacity_bytes = 0;
  uint32_t length_bytes = 0;  ///< set by the core
  bool loopback = false;      ///< set by the core: destined for this device itself
  void* handle = nullptr;
};

class Port {
 public:
  virtual ~Port() = default;

  /// Fills `out` with empty buffers of at least wire::kMaxFrameBytes (or the port's MTU) and returns their
  /// number. Returns fewer than requested if the pool is short of buffers.
  [[nodiscard]] virtual size_t allocate(std::span<TxFrame> out) = 0;

  /// Sends a prefix of `frames` in order, takes ownership of those buffers and returns their number. The
  /// caller keeps the rest and sends them first in its next call.
  [[nodiscard]] virtual size_t transmit(std::span<TxFrame> frames) = 0;

  /// Returns allocated but unsent buffers to the pool.
  virtual void free_unsent(std::span<TxFrame> frames) = 0;

  /// Returns received buffers to the port.
  virtual void release(std::span<RxFrame> frames) = 0;
};

}  // namespace faultline::transport
