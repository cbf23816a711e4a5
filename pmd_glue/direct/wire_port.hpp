// SPDX-License-Identifier: BSD-3-Clause
// The port of a device on a wire. Direct links lead to the processes that it talks to. A ring to the switch
// carries everything else: multicast, management datagrams, neighbours, the uplink, and peers without a link
// yet.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "pmd_glue/direct/active_rings.hpp"
#include "pmd_glue/direct/direct_link.hpp"
#include "pmd_glue/eal/port_identity.hpp"
#include "pmd_glue/ports/port.hpp"
#include "pmd_glue/wires/wire_attachment.hpp"
#include "stack/base/spin_lock.hpp"

namespace faultline::glue {

class WirePort final : public EthernetPort {
 public:
  /// A link that has carried nothing for so long is closed.
  static constexpr TimeNs kIdleNs = 60'000'000'000;

  /// Returns nullptr with an error line. The attachment outlives the port.
  [[nodiscard]] static std::unique_ptr<WirePort> open(const Config& config, const DeviceConfig& device,
                                                      WireAttachment& attachment, std::string& error);
  ~WirePort() override;

  // EthernetPort
  [[nodiscard]] size_t receive(uint16_t queue, std::span<rte_mbuf*> burst) override;
  [[nodiscard]] size_t transmit(uint32_t core, std::span<rte_mbuf*> burst) override;
  [[nodiscard]] std::optional<wire::MacAddress> mac_of_peer(const wire::Gid& peer) const override;
  [[nodiscard]] bool sends_by_socket() const override { return attachment_.grant().by_sockets != 0; }
  [[nodiscard]] uint32_t most_window_packets() const override;
  /// The ring to the switch is up, and so is an uplink by sockets; direct links depend on neither.
  [[nodiscard]] bool link_up() const override { return is_ring_up() && attachment_.is_uplink_up(); }
  [[nodiscard]] PortDrops drops() const override { return {}; }
  [[nodiscard]] uint64_t transmit_drops() const override { return dropped_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t peer_violations() const override {
    return violations_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_gone() const override { return false; }
  [[nodiscard]] bool needs_reconnect() const override { return !is_ring_up(); }
  /// Takes the seat that a new switch has granted.
  void reconnect() override;

  // The caller holds the turn of the first core.

  /// Takes a link that the switch has made, or the end of one.
  void take(WireAttachment::LinkNews news);
  struct Ended {
    uint32_t peer_port;
    bool barred;
  };
  /// Looks after all links: the peer or the clock may have ended them, or a ring was lost. Returns the seats
  /// of links that this end has ended, for WireAttachment::end_link.
  [[nodiscard]] std::vector<Ended> look_after(TimeNs now);
  /// From arm() to disarm() the switch and every peer ring after they have sent frames, and wake this
  /// process. The caller runs one more turn after arm().
  void arm(WakeFor what);
  void disarm();
  /// Between arm() and disarm(), after a ring: the next one wakes this process again.
  void sleep_on(WakeFor what) { inbox_->set_asleep(what); }
  /// True if a turn would find frames.
  [[nodiscard]] bool has_frames() const { return to_switch_->has_frames() || rings_->has_frames(); }
  /// True if frames wait that a later turn receives or transmits without a ring.
  [[nodiscard]] bool holds_back() const { return holds_back_ || keeps_frames(); }
  /// True if frames wait for peers that take none for now. Any thread.
  [[nodiscard]] bool keeps_frames() const { return budget_.kept() != 0; }
  /// True if another process has broken a ring that look_after() has not seen yet. Any thread.
  [[nodiscard]] bool has_offender() const { return has_offender_.load(std::memory_order_relaxed); }
  [[nodiscard]] size_t links() const { return links_.size(); }

 private:
  struct Entry {
    std::unique_ptr<DirectLink> link;
    uint64_t mac = 0;  ///< wire::mac_word()
    // QPNs of the peer; all if it does not share its address.
    uint32_t first_qpn = 0;
    uint32_t last_qpn = UINT32_MAX;
  };

  WirePort(WireAttachment& attachment, std::unique_ptr<PortIdentity> identity, rte_mempool* pool,
           uint32_t cores);
  [[nodiscard]] bool is_ring_up() const;
  void use_seat(WireAttachment::Seat seat);
  [[nodiscard]] DirectLink* route(const rte_mbuf* frame);
  [[nodiscard]] bool send_marker(DirectLink& link);
  [[nodiscard]] size_t put_on_switch(std::span<rte_mbuf*> frames);
  [[nodiscard]] size_t receive_from_links(std::span<rte_mbuf*> burst);
  [[nodiscard]] size_t receive_from_switch(std::span<rte_mbuf*> burst, bool& has_opened);
  void flush_kept_frames();
  void count_drops(uint64_t dropped);
  void add(std::unique_ptr<DirectLink> link);
  void leave_routes(Entry& entry);
  void drop(Entry& entry);
  void note_violation(const SwitchGrant& peer, const char* what);

  WireAttachment& attachment_;
  const std::unique_ptr<PortIdentity> identity_;  ///< nullptr: nothing asks for it
  std::shared_ptr<Inbox> inbox_;
  std::unique_ptr<SharedRing> to_switch_;
  std::atomic<uint32_t> seat_count_{0};  ///< of the seat in use
  std::atomic<bool> switch_broke_ring_{false};
  KeptBudget budget_;
  std::vector<std::unique_ptr<Entry>> links_;
  std::array<Entry*, Inbox::kSeats> of_ring_{};
  std::unordered_map<uint64_t, std::vector<Entry*>> by_mac_;
  std::optional<ActiveRings> rings_;
  Entry* last_route_ = nullptr;
  bool is_armed_ = false;
  bool holds_back_ = false;
  std::atomic<bool> has_offender_{false};
  SpinLock table_;  ///< held to change the links and the ring, and to transmit if further cores do
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> violations_{0};
};

}  // namespace faultline::glue
