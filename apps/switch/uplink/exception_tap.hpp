// SPDX-License-Identifier: BSD-3-Clause
// The exception port: a tap interface that gives the kernel what the uplink receives for the host and is not
// RoCEv2. It is no port of DPDK's net_tap, whose interface ends with the process: this one stays, with its
// addresses and routes, while a switch is replaced.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "stack/base/unique_fd.hpp"
#include "stack/wire/link/link.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace faultline::switching {

class ExceptionTap {
 public:
  /// Makes the interface, or takes one that no process uses, with this MAC address and L3 MTU, and brings it
  /// up. Returns nullptr with the reason and an advice in `error`.
  [[nodiscard]] static std::unique_ptr<ExceptionTap> open(const std::string& name,
                                                          const wire::MacAddress& mac, uint32_t mtu_bytes,
                                                          std::string& error);

  /// Readable while the kernel's frames wait.
  [[nodiscard]] int descriptor() const { return tap_.get(); }
  /// Receives frames that the kernel sends into buffers of `pool`; returns their number.
  [[nodiscard]] size_t receive(rte_mempool* pool, std::span<rte_mbuf*> burst);
  /// Gives frames to the kernel, and frees them. The kernel drops them while the interface is down.
  void transmit(std::span<rte_mbuf*> burst);

 private:
  explicit ExceptionTap(UniqueFd tap) : tap_(std::move(tap)) {}

  const UniqueFd tap_;
};

}  // namespace faultline::switching
