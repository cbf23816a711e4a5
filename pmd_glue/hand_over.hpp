// SPDX-License-Identifier: BSD-3-Clause
// Between the lcores of a device: frames that one of them received, or looped back, and another owns. No port
// here can steer by QPN, so whoever has such a frame pushes it into its owner's ring; a full ring is a drop,
// or back-pressure for the device's own frames.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

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

 private:
  HandOver() = default;
  std::vector<rte_ring*> rings_;
};

}  // namespace faultline::glue
