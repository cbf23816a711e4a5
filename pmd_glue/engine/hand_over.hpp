// SPDX-License-Identifier: BSD-3-Clause
// Between the lcores of a device: frames that one of them received, or looped back, and another owns. No port
// here can steer by QPN, so whoever has such a frame pushes it into its owner's ring; a full ring is a drop,
// or back-pressure for the device's own frames.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pmd_glue/config/config.hpp"
#include "stack/transport/core/core.hpp"

struct rte_mbuf;
struct rte_ring;

namespace faultline::glue {

class HandOver {
 public:
  /// nullptr where there is no memory.
  [[nodiscard]] static std::unique_ptr<HandOver> create(uint16_t port_id, uint32_t cores);
  /// Frees what nobody took.
  ~HandOver();
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  /// Any core's thread. The rings take a prefix of `frames`; returns its length.
  [[nodiscard]] size_t push(uint32_t core, std::span<rte_mbuf*> frames);
  /// That core's thread.
  [[nodiscard]] size_t take(uint32_t core, std::span<rte_mbuf*> out);
  /// Who hears of frames for a core that sleeps; nullptr, as at first: nobody. As Core's own listener is, set
  /// before a turn.
  void set_listener(uint32_t core, transport::DoorbellListener* listener) {
    listeners_[core].store(listener, std::memory_order_seq_cst);
  }

 private:
  HandOver() = default;
  std::vector<rte_ring*> rings_;
  std::array<std::atomic<transport::DoorbellListener*>, kMaxCores> listeners_{};
};

}  // namespace faultline::glue
