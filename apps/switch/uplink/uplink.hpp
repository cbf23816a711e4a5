// SPDX-License-Identifier: BSD-3-Clause
// The switch's port to another network. Programs send and receive untagged frames: the uplink adds and
// removes the tag of its VLAN. Sockets of the host's addresses (port kind udp) send and receive without one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "apps/switch/uplink/outside_groups.hpp"
#include "pmd_glue/config/config.hpp"
#include "pmd_glue/ports/port.hpp"
#include "stack/base/clock.hpp"

struct rte_mbuf;

namespace faultline::switching {

class Uplink final : public OutsideGroups {
 public:
  /// EAL must be running. Returns nullptr with an error line that names the key.
  [[nodiscard]] static std::unique_ptr<Uplink> open(const glue::Config& config,
                                                    const glue::DeviceConfig& device, std::string& error);

  /// Receives frames without a tag; returns their number. The caller owns them.
  [[nodiscard]] size_t receive(std::span<rte_mbuf*> burst);
  /// Returns the frame as the port transmits it, or nullptr without a buffer. Takes the caller's reference.
  [[nodiscard]] rte_mbuf* prepare(rte_mbuf* frame);
  /// Transmits frames of prepare(); returns how many the port took, from the first on.
  [[nodiscard]] size_t transmit(std::span<rte_mbuf*> burst) {
    return port_->started() ? port_->transmit(0, burst) : 0;
  }
  [[nodiscard]] bool link_up() const { return port_->link_up(); }
  /// A descriptor that is readable while frames wait at sockets; -1 for other ports, which are polled.
  [[nodiscard]] int descriptor() const { return sends_by_socket() ? port_->frames_descriptor(0) : -1; }
  [[nodiscard]] bool sends_by_socket() const { return port_->sends_by_socket(); }
  // Frames of every group arrive at a port that receives frames to all groups.
  [[nodiscard]] int join_group(const wire::Gid& group) override { return port_->join_group(group); }
  void leave_group(const wire::Gid& group) override { port_->leave_group(group); }
  [[nodiscard]] uint32_t most_window_packets() const { return port_->most_window_packets(); }
  /// Returns the address of the NIC or of the kernel's interface; with sockets, the one that stands for the
  /// host.
  [[nodiscard]] wire::MacAddress mac() const;
  /// 0: none.
  [[nodiscard]] uint32_t vlan_id() const { return vlan_.present ? vlan_.tci & wire::kVlanIdMask : 0U; }
  [[nodiscard]] glue::PortDrops drops() const { return port_->drops(); }
  /// Frames that the port took and dropped.
  [[nodiscard]] uint64_t transmit_drops() const { return port_->transmit_drops(); }
  /// L3.
  [[nodiscard]] uint32_t mtu_bytes() const { return mtu_bytes_; }
  /// Received frames without the tag of the VLAN, which are dropped.
  [[nodiscard]] uint64_t foreign_vlan() const { return foreign_vlan_; }

 private:
  Uplink(std::unique_ptr<glue::EthernetPort> port, const glue::DeviceConfig& device);

  /// Connects a client's port again. Only the switch's thread uses the port, and not at the same time.
  void keep_link();
  void serve_requests();

  const std::unique_ptr<glue::EthernetPort> port_;
  const wire::VlanTag vlan_;
  const wire::MacAddress mac_;  ///< of the configuration
  const uint32_t mtu_bytes_;
  uint64_t foreign_vlan_ = 0;
  bool is_gone_ = false;
  unsigned receives_ = 0;
  TimeNs next_request_look_ = 0;
  TimeNs next_look_ = 0;
  uint16_t next_queue_ = 0;
};

}  // namespace faultline::switching
