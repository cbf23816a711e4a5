// SPDX-License-Identifier: BSD-3-Clause
// The switch's data path: DPDK ports, one memif for each seat and perhaps an uplink, and the frames between
// them. One thread turns it; ports of seats are made when first needed and then kept, to be given out again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "apps/switch/stations.hpp"
#include "pmd_glue/config.hpp"
#include "pmd_glue/memif_gate.hpp"
#include "pmd_glue/port.hpp"
#include "pmd_glue/switch_bell.hpp"
#include "pmd_glue/turn_lock.hpp"

struct rte_mbuf;

namespace faultline::switching {

struct SwitchCounters {
  uint64_t forwarded = 0;
  uint64_t answered = 0;
  uint64_t full = 0;  ///< for a port that takes nothing and has its share waiting already
  std::array<uint64_t, static_cast<size_t>(Drop::count_)> drops{};
};

class FrameSwitch {
 public:
  /// EAL is running. Sockets of seats are `socket_prefix`.N.
  FrameSwitch(const glue::Config& config, std::string socket_prefix);
  ~FrameSwitch();
  FrameSwitch(const FrameSwitch&) = delete;
  FrameSwitch& operator=(const FrameSwitch&) = delete;

  [[nodiscard]] bool open_uplink(const glue::PortConfig& port, std::string& error);

  /// What function(stations) returns. Not from within another.
  template <typename Function>
  auto with_stations(Function function) {
    const std::lock_guard turn(turns_);
    return function(stations_);
  }
  /// A port that nobody has, the `wanted` one where that is free; `bell` is rung for what is sent to it.
  /// Nothing, and one line in `error`, where there is none.
  [[nodiscard]] std::optional<PortIndex> take_port(std::optional<PortIndex> wanted, glue::SwitchBell& bell,
                                                   std::string& error);
  /// A port that got no seat.
  void give_back(PortIndex port);
  /// The end of a seat.
  void leave(PortIndex port);
  [[nodiscard]] const std::string& socket_of(PortIndex port) const { return ports_[port].socket; }
  [[nodiscard]] uint32_t mtu_bytes() const { return mtu_bytes_; }

  /// Takes what has come and sends it on. True if anything moved.
  bool turn();
  /// Whether all who send will ring from now on (true), or need not (false).
  void say_asleep(bool asleep);
  /// Nobody rings when the uplink has frames, nor when a slow port takes what waits for it.
  [[nodiscard]] bool must_look() const;

  [[nodiscard]] const SwitchCounters& counters() const { return counters_; }

 private:
  static constexpr size_t kBurst = 64;
  static constexpr size_t kWaiting = 1024;  ///< frames that a slow port may have waiting

  struct Port {
    std::unique_ptr<glue::EthernetPort> port;
    std::string socket;
    glue::SwitchBell* bell = nullptr;  ///< of the seat
    bool taken = false;
    uint64_t last_taken = 0;
    std::vector<rte_mbuf*> waiting;
  };

  [[nodiscard]] bool open_port(const glue::PortConfig& wanted, PortIndex index, std::string& error);
  [[nodiscard]] std::optional<PortIndex> find_free() const;
  // With the turn.
  bool take_burst();
  size_t receive(PortIndex from);
  void forward(rte_mbuf* frame, PortIndex from);
  [[nodiscard]] bool any_link_up(const PortSet& ports) const;
  void send_answer(rte_mbuf* question, PortIndex to);
  void put(rte_mbuf* frame, PortIndex to);
  size_t flush(Port& port);
  static void give_back(Port& port);
  static void drop_waiting(Port& port);

  const glue::Config& config_;
  const std::string socket_prefix_;
  StationTable stations_;
  std::array<Port, kMaxPorts> ports_;  ///< those that were not needed yet have no port
  std::optional<PortIndex> uplink_;
  uint32_t mtu_bytes_ = 0;
  uint64_t seats_taken_ = 0;
  SwitchCounters counters_;
  glue::TurnLock turns_;  ///< the switch's own thread, or EAL's when a link ends
  glue::MemifGate gate_;
};

}  // namespace faultline::switching
