// SPDX-License-Identifier: BSD-3-Clause
// A port that transmits and receives Ethernet frames. Each kind of port has a driver that derives from it
// (driver.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pmd_glue/config/config.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace faultline::glue {

/// Received frames that a port has dropped.
struct PortDrops {
  uint64_t missed = 0;     ///< no room in the port
  uint64_t no_buffer = 0;  ///< no buffer in the pool
};

/// Sent packets that did not reach their peer, as the network has reported.
struct PathDrops {
  uint64_t too_long = 0;     ///< for the path
  uint64_t unreachable = 0;  ///< nobody receives there
};

class RssTable;

class EthernetPort {
 public:
  /// Creates, configures and starts the port of a device. A memif client without a server counts as open: see
  /// reconnect(). Returns nullptr with an error line that names the key.
  [[nodiscard]] static std::unique_ptr<EthernetPort> open(const Config& config, const DeviceConfig& device,
                                                          std::string& error);
  virtual ~EthernetPort() = default;
  EthernetPort(const EthernetPort&) = delete;
  EthernetPort& operator=(const EthernetPort&) = delete;

  // --- data path: the thread that holds the turn of a core ---

  /// Receives frames from a queue into `burst`; returns their number. The caller owns them.
  [[nodiscard]] virtual size_t receive(uint16_t queue, std::span<rte_mbuf*> burst) = 0;
  /// Transmits frames of a core; returns how many the port took, from the first on.
  [[nodiscard]] virtual size_t transmit(uint32_t core, std::span<rte_mbuf*> burst) = 0;
  /// Call before a sleep. Returns the queue's descriptor, which reports frames that arrive from here on; -1:
  /// the queue has to be polled. The caller receives once more before it sleeps.
  [[nodiscard]] virtual int await_frames(uint16_t queue) { return frames_descriptor(queue); }
  /// Call after the sleep, before the frames are received.
  virtual void stop_awaiting_frames(uint16_t /*queue*/) {}
  /// Call after the turn that follows a sleep on the queue's descriptor.
  virtual void note_wake(uint16_t /*queue*/, bool /*reported*/, bool /*received*/) {}

  // A port with a queue pair for each core (net_ring, net_af_packet, NICs): a core transmits on its own pair.
  // It receives from its own, or from several if the peer has more cores. A port with one pair (net_memif,
  // net_tap, net_af_xdp): the first core receives, and transmission takes a lock.
  [[nodiscard]] uint16_t receive_queues() const { return queue_pairs_; }
  /// Returns the core that receives from a queue.
  [[nodiscard]] uint32_t receiver_of(uint16_t queue) const { return queue % cores_; }

  // --- any thread ---

  /// Returns the table by which the port distributes flows over its queues; nullptr if it has none.
  [[nodiscard]] virtual RssTable* flow_table() { return nullptr; }
  /// DPDK's number of the port.
  [[nodiscard]] uint16_t id() const { return id_; }
  [[nodiscard]] rte_mempool* pool() const { return pool_; }
  /// Returns the MAC address that the NIC prescribes for the device; nullopt: the configured address applies.
  [[nodiscard]] const std::optional<wire::MacAddress>& own_mac() const { return own_mac_; }
  /// Returns the MAC address that stands for a peer, on a port whose packets the kernel routes; nullopt: the
  /// device resolves its neighbours.
  [[nodiscard]] virtual std::optional<wire::MacAddress> mac_of_peer(const wire::Gid& /*peer*/) const {
    return std::nullopt;
  }
  /// True if the kernel writes the UDP and IP headers of the port's packets (wire::Checksums::by_socket).
  [[nodiscard]] virtual bool sends_by_socket() const { return false; }
  /// Limit of the unacknowledged packets of a QP, so that a peer with the same limits does not drop them.
  [[nodiscard]] virtual uint32_t most_window_packets() const { return UINT32_MAX; }
  [[nodiscard]] bool offloads_ipv4_checksum() const { return ipv4_checksum_; }
  [[nodiscard]] bool offloads_udp_checksum() const { return udp_checksum_; }
  /// True if bursts are allowed. Changes only in open() and reconnect().
  [[nodiscard]] bool started() const { return started_; }
  [[nodiscard]] virtual bool link_up() const = 0;
  /// Returns a descriptor that is readable while frames wait in a receive queue; -1 if the port has none.
  /// With receive interrupts it reports only between await_frames() and stop_awaiting_frames().
  [[nodiscard]] int frames_descriptor(uint16_t queue) const {
    return queue < frames_descriptors_.size() ? frames_descriptors_[queue] : -1;
  }
  /// True if stop_awaiting_frames() clears the descriptor, also of a report without a frame.
  [[nodiscard]] virtual bool has_interrupts() const { return false; }
  /// True if an idle port needs only rare checks of its state, since its interrupts work and it reports its
  /// removal.
  [[nodiscard]] virtual bool may_rest() const { return false; }
  /// True if the port's frames wait in memory that is unmapped with the link. Both ends then receive once
  /// more before a link ends (memif_gate.hpp), and a program that exits gives its peer time to take the last
  /// frames.
  [[nodiscard]] virtual bool link_holds_frames() const { return false; }
  [[nodiscard]] virtual PortDrops drops() const = 0;
  /// Frames that the port took and dropped, because their peer takes none.
  [[nodiscard]] virtual uint64_t transmit_drops() const { return 0; }
  [[nodiscard]] virtual PathDrops path_drops() const { return {}; }
  /// Number of links closed because the peer violated the shared-memory protocol.
  [[nodiscard]] virtual uint64_t peer_violations() const { return 0; }
  /// True if the interface or device below the port was removed permanently.
  [[nodiscard]] virtual bool is_gone() const = 0;
  /// Gives the device of a port that is gone back to the kernel, which may wait for it. Called once, as
  /// reconnect(); no other function of the port may be called at the same time. link_up() is false from then
  /// on.
  virtual void release() {}
  /// Receives frames for every MAC address.
  virtual void receive_for_all() {}
  /// Starts or stops reception of a multicast group, on a port that does not receive frames to all groups.
  /// The caller is in a call to the first core. join_group() returns 0 or an errno.
  [[nodiscard]] virtual int join_group(const wire::Gid& /*group*/) { return 0; }
  virtual void leave_group(const wire::Gid& /*group*/) {}

  /// True if a lost link needs reconnect().
  [[nodiscard]] virtual bool needs_reconnect() const { return false; }
  /// Stops and starts the port. The caller must not be in a burst, nor hold a lock under which bursts run:
  /// EAL's interrupt thread reconnects memif, and may wait for bursts to end (memif_gate.hpp).
  virtual void reconnect() {}

  /// True if the NIC asks for reset().
  [[nodiscard]] virtual bool needs_reset() const { return false; }
  /// Resets the NIC, and starts the port with its earlier configuration. Frames in its queues are lost. If
  /// the reset fails, started() is false, and needs_reset() stays true. The caller has the duties of
  /// reconnect().
  virtual void reset() {}

 protected:
  EthernetPort() = default;

  uint16_t id_ = 0;
  bool started_ = false;
  bool ipv4_checksum_ = false;
  bool udp_checksum_ = false;
  uint16_t queue_pairs_ = 1;
  uint32_t cores_ = 1;
  rte_mempool* pool_ = nullptr;
  std::optional<wire::MacAddress> own_mac_;
  std::vector<int> frames_descriptors_;  ///< by receive queue
};

/// Returns the L3 MTU of a device's port before it is opened.
[[nodiscard]] uint32_t port_mtu_bytes(const DeviceConfig& device);

/// Returns whether the link of a port that is not open would be up: the state of its kernel interface; true
/// for other ports.
[[nodiscard]] bool expects_link(const PortConfig& config);

/// Returns whether a forked child may open the port again while its parent has it.
[[nodiscard]] bool child_may_open(const PortConfig& config);

}  // namespace faultline::glue
