// SPDX-License-Identifier: BSD-3-Clause
// A device of DPDK that carries no frames. The ports of kind wire and udp need none for their frames, but
// captures (pcapng), telemetry and the names of rings take a port by DPDK's number.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

struct rte_ring;

namespace faultline::glue {

class PortIdentity {
 public:
  /// `name` is unique in the process, and in a forked child differs from the parent's. Returns nullptr with a
  /// reason in `error`.
  [[nodiscard]] static std::unique_ptr<PortIdentity> create(const std::string& name, std::string& error);
  ~PortIdentity();
  PortIdentity(const PortIdentity&) = delete;
  PortIdentity& operator=(const PortIdentity&) = delete;

  /// DPDK's number of the port.
  [[nodiscard]] uint16_t id() const { return id_; }

 private:
  PortIdentity(rte_ring* ring, uint16_t id, std::string vdev)
      : ring_(ring), id_(id), vdev_(std::move(vdev)) {}

  rte_ring* const ring_;
  const uint16_t id_;
  const std::string vdev_;
};

}  // namespace faultline::glue
