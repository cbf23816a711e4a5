// SPDX-License-Identifier: BSD-3-Clause
// The switch's data path: DPDK ports (one memif per seat, and an optional uplink) and forwarding between
// them. One thread runs it. A seat's port is created on first use and kept for later seats.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/switch/open_connections.hpp"
#include "apps/switch/seats.hpp"
#include "apps/switch/stations.hpp"
#include "apps/switch/waiting_room.hpp"
#include "pmd_glue/config/config.hpp"
#include "pmd_glue/memif/memif_gate.hpp"
#include "pmd_glue/ports/port.hpp"
#include "pmd_glue/wires/wake_flag.hpp"
#include "stack/base/turn_lock.hpp"

struct rte_mbuf;

namespace faultline::switching {

struct SwitchCounters {
  uint64_t forwarded = 0;
  uint64_t answered = 0;
  uint64_t full = 0;     ///< drops: the port takes nothing and its queue is full
  uint64_t crowded = 0;  ///< drops: the port takes nothing and the space shared by such ports is used up
  std::array<uint64_t, static_cast<size_t>(Drop::count_)> drops{};
};

class FrameSwitch final : public Seats {
 public:
  /// EAL must be running. Seat N's socket is `socket_prefix`.N.
  FrameSwitch(const glue::Config& config, std::string socket_prefix);
  ~FrameSwitch() override;
  FrameSwitch(const FrameSwitch&) = delete;
  FrameSwitch& operator=(const FrameSwitch&) = delete;

  [[nodiscard]] bool open_uplink(const glue::PortConfig& port, std::string& error);

  void with_stations(const std::function<void(StationTable&)>& use) override;
  [[nodiscard]] std::optional<PortIndex> take_port(std::optional<PortIndex> wanted, glue::WakeFlag& wake_flag,
                                                   std::string& error) override;
  void give_back(PortIndex port) override;
  void leave(PortIndex port) override;
  [[nodiscard]] const std::string& socket_of(PortIndex port) const override { return ports_[port].socket; }
  [[nodiscard]] uint32_t mtu_bytes() const override { return mtu_bytes_; }

  /// Receives and forwards pending frames. Returns true if a frame moved, or if another thread holds the
  /// lock.
  bool turn();
  /// Sets whether every sender must ring from now on (true) or need not (false).
  void set_asleep(bool asleep);
  /// Whether the ports must be polled: no wake-up arrives for the uplink's frames, nor when a slow port has
  /// room again.
  [[nodiscard]] bool needs_polling() const;

  [[nodiscard]] const SwitchCounters& counters() const { return counters_; }

 private:
  static constexpr size_t kBurst = 64;

  struct Port {
    std::unique_ptr<glue::EthernetPort> port;
    std::string socket;
    glue::WakeFlag* wake_flag = nullptr;  ///< the seat's
    bool taken = false;
    uint64_t last_taken = 0;
    std::vector<rte_mbuf*> waiting;  ///< counted by room_
    uint64_t dropped = 0;            ///< since the port last took a frame
  };

  [[nodiscard]] bool open_port(const glue::PortConfig& wanted, PortIndex index, std::string& error);
  [[nodiscard]] std::optional<PortIndex> find_free() const;
  // Requires turns_ to be held.
  bool take_burst();
  size_t receive(PortIndex from);
  void forward(rte_mbuf* frame, PortIndex from);
  void note_connection(rte_mbuf* frame, PortIndex from);
  void send_as(PortIndex from, std::span<const uint8_t> bytes);
  [[nodiscard]] bool any_link_up(const PortSet& ports) const;
  void send_answer(rte_mbuf* question, PortIndex to);
  void put(rte_mbuf* frame, PortIndex to);
  size_t flush(PortIndex index);
  void note_drop(PortIndex to, WaitingRoom::Admission why);
  void drop_waiting(PortIndex index);
  void free_port(PortIndex index);

  const glue::Config& config_;
  const std::string socket_prefix_;
  StationTable stations_;
  OpenConnections connections_;
  WaitingRoom room_;
  std::array<Port, kMaxPorts> ports_;  ///< without an EthernetPort until first needed
  std::optional<PortIndex> uplink_;
  uint32_t mtu_bytes_ = 0;
  uint64_t seats_taken_ = 0;
  SwitchCounters counters_;
  TurnLock turns_;  ///< taken by the switch's thread, or by EAL's when a link ends
  glue::MemifGate gate_;
};

}  // namespace faultline::switching
