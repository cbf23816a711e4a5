// SPDX-License-Identifier: BSD-3-Clause
// The port of a simulated host: gives the core buffers for the frames that fit into the transmit ring, and
// puts the beginnings of its frames into the fabric.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apps/sim/fabric/fabric.hpp"
#include "stack/transport/shared/port.hpp"

namespace faultline::fabric {

/// Transmit buffers of all hosts. They are whole frames, since the core writes behind the payload, too. Few
/// are in use at a time: a host's core keeps one between two turns.
class BufferPool {
 public:
  [[nodiscard]] uint8_t* take();
  void give_back(uint8_t* buffer) { free_.push_back(buffer); }

 private:
  std::vector<std::unique_ptr<uint8_t[]>> buffers_;
  std::vector<uint8_t*> free_;
};

class Nic final : public transport::Port {
 public:
  Nic(uint32_t host, uint32_t ring_frames, Fabric& fabric, BufferPool& buffers)
      : host_(host), ring_frames_(ring_frames), fabric_(fabric), buffers_(buffers) {}

  /// Sets the time of the turn that begins.
  void begin_turn(TimePs now_ps) {
    now_ps_ = now_ps;
    was_full_ = false;
  }
  /// True if the ring had no room for a frame in this turn.
  [[nodiscard]] bool was_full() const { return was_full_; }

  /// Gives one buffer at a time: what the core does not use it would keep.
  [[nodiscard]] size_t allocate(std::span<transport::TxFrame> out) override;
  [[nodiscard]] size_t transmit(std::span<transport::TxFrame> frames) override;
  void free_unsent(std::span<transport::TxFrame> frames) override;
  void release(std::span<transport::RxFrame> frames) override;

  /// Returns a received frame as the core takes it. The core reads no byte of it that is not there: headers
  /// are at its beginning, the payload is only passed on to the memory, and the ICRC is not verified.
  [[nodiscard]] static transport::RxFrame received(Frame& frame);

 private:
  const uint32_t host_;
  const uint32_t ring_frames_;
  Fabric& fabric_;
  BufferPool& buffers_;
  TimePs now_ps_ = 0;
  uint32_t with_core_ = 0;  // buffers
  bool was_full_ = false;
};

}  // namespace faultline::fabric
