// SPDX-License-Identifier: BSD-3-Clause
// The switch's data path: DPDK ports, one memif for each seat and perhaps an uplink, and the frames between
// them. One thread turns it; ports of seats are made when first needed and then kept, to be given out again.
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
#include "pmd_glue/wires/switch_bell.hpp"
#include "stack/base/turn_lock.hpp"

struct rte_mbuf;

namespace faultline::switching {

struct SwitchCounters {
  uint64_t forwarded = 0;
  uint64_t answered = 0;
  uint64_t full = 0;     ///< for a port that takes nothing and has its share waiting already
  uint64_t crowded = 0;  ///< for one that takes nothing, while those who take nothing share all there is
  std::array<uint64_t, static_cast<size_t>(Drop::count_)> drops{};
};

class FrameSwitch final : public Seats {
 public:
  /// EAL is running. Sockets of seats are `socket_prefix`.N.
  FrameSwitch(const glue::Config& config, std::string socket_prefix);
  ~FrameSwitch() override;
  FrameSwitch(const FrameSwitch&) = delete;
  FrameSwitch& operator=(const FrameSwitch&) = delete;

  [[nodiscard]] bool open_uplink(const glue::PortConfig& port, std::string& error);

  void with_stations(const std::function<void(StationTable&)>& use) override;
  [[nodiscard]] std::optional<PortIndex> take_port(std::optional<PortIndex> wanted, glue::SwitchBell& bell,
                                                   std::string& error) override;
  void give_back(PortIndex port) override;
  void leave(PortIndex port) override;
  [[nodiscard]] const std::string& socket_of(PortIndex port) const override { return ports_[port].socket; }
  [[nodiscard]] uint32_t mtu_bytes() const override { return mtu_bytes_; }

  /// Takes what has come and sends it on. True if anything moved.
  bool turn();
  /// Whether all who send will ring from now on (true), or need not (false).
  void say_asleep(bool asleep);
  /// Nobody rings when the uplink has frames, nor when a slow port takes what waits for it.
  [[nodiscard]] bool must_look() const;

  [[nodiscard]] const SwitchCounters& counters() const { return counters_; }

 private:
  static constexpr size_t kBurst = 64;

  struct Port {
    std::unique_ptr<glue::EthernetPort> port;
    std::string socket;
    glue::SwitchBell* bell = nullptr;  ///< of the seat
    bool taken = false;
    uint64_t last_taken = 0;
    std::vector<rte_mbuf*> waiting;  ///< counted by room_
    uint64_t dropped = 0;            ///< since the port took something last
  };

  [[nodiscard]] bool open_port(const glue::PortConfig& wanted, PortIndex index, std::string& error);
  [[nodiscard]] std::optional<PortIndex> find_free() const;
  // With the turn.
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
  std::array<Port, kMaxPorts> ports_;  ///< those that were not needed yet have no port
  std::optional<PortIndex> uplink_;
  uint32_t mtu_bytes_ = 0;
  uint64_t seats_taken_ = 0;
  SwitchCounters counters_;
  TurnLock turns_;  ///< the switch's own thread, or EAL's when a link ends
  glue::MemifGate gate_;
};

}  // namespace faultline::switching
