// SPDX-License-Identifier: BSD-3-Clause
// A transport port over plain memory: a bounded buffer pool and a bounded ring, which run short by script,
// and checks of buffer ownership.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "stack/transport/shared/port.hpp"
#include "tests/sim/world/random.hpp"
#include "tests/sim/world/trace.hpp"

namespace faultline::sim {

struct PortScript {
  uint32_t tx_buffers = 256;
  uint32_t tx_ring = 128;
  uint32_t rx_buffers = 512;
  uint32_t short_allocate_permille = 0;  ///< allocate() returns fewer buffers than available
  uint32_t short_transmit_permille = 0;  ///< transmit() accepts fewer frames than fit
};

class SimPort final : public transport::Port {
 public:
  /// Sends a frame and returns the time at which it has left; `loopback` as the core set it.
  using Wire = std::function<TimeNs(Frame frame, bool loopback)>;

  SimPort(const PortScript& script, Random random, Wire wire);

  [[nodiscard]] size_t allocate(std::span<transport::TxFrame> out) override;
  [[nodiscard]] size_t transmit(std::span<transport::TxFrame> frames) override;
  void free_unsent(std::span<transport::TxFrame> frames) override;
  void release(std::span<transport::RxFrame> frames) override;

  /// Advances virtual time: returns buffers whose frames have left.
  void advance(TimeNs now);
  /// Presents a received frame to the core. Returns false if no buffer is left.
  bool receive(const Frame& frame, uint32_t rx_checks, transport::RxFrame& out);

  [[nodiscard]] PortScript& script() { return script_; }
  [[nodiscard]] size_t rx_in_use() const { return received_.size(); }
  /// Number of buffers held by the core.
  [[nodiscard]] size_t tx_with_core() const { return with_core_; }

  uint64_t rx_no_buffer = 0;
  std::string fault;  ///< description of the first misuse of a buffer

 private:
  enum class Holder : uint8_t { pool, core, ring };
  struct TxBuffer {
    std::unique_ptr<uint8_t[]> bytes;
    Holder holder = Holder::pool;
  };
  void misuse(const char* what) {
    if (fault.empty()) fault = what;
  }
  void to_pool(size_t index);

  PortScript script_;
  Random random_;
  Wire wire_;
  TimeNs now_ = 0;
  std::vector<TxBuffer> buffers_;
  std::vector<size_t> free_;
  size_t with_core_ = 0;
  std::deque<std::pair<TimeNs, size_t>> ring_;
  uint64_t next_receive_ = 1;
  std::unordered_map<uint64_t, std::unique_ptr<uint8_t[]>> received_;
};

}  // namespace faultline::sim
