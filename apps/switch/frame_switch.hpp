// SPDX-License-Identifier: BSD-3-Clause
// The switch's data path: a ring in shared memory for each seat, an optional port of DPDK as the uplink, and
// forwarding between them. One thread runs it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/switch/linked_pairs.hpp"
#include "apps/switch/open_connections.hpp"
#include "apps/switch/seats.hpp"
#include "apps/switch/stations.hpp"
#include "apps/switch/waiting_room.hpp"
#include "pmd_glue/config/config.hpp"
#include "pmd_glue/direct/active_rings.hpp"
#include "pmd_glue/direct/shared_ring.hpp"
#include "pmd_glue/ports/port.hpp"
#include "pmd_glue/wires/inbox.hpp"
#include "stack/wire/link/neighbour_link.hpp"

struct rte_mbuf;
struct rte_mempool;

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
  /// EAL must be running. `inbox` is the switch's, in which its processes ring.
  FrameSwitch(const glue::Config& config, glue::Inbox& inbox);
  ~FrameSwitch() override;
  FrameSwitch(const FrameSwitch&) = delete;
  FrameSwitch& operator=(const FrameSwitch&) = delete;

  [[nodiscard]] bool open_uplink(const glue::PortConfig& port, std::string& error);

  void with_stations(const std::function<void(StationTable&)>& use) override { use(stations_); }
  [[nodiscard]] std::optional<PortIndex> take_port(std::optional<PortIndex> wanted,
                                                   std::string& error) override;
  [[nodiscard]] bool begin_ring(PortIndex port, int memory, std::unique_ptr<glue::Inbox> inbox) override;
  [[nodiscard]] std::vector<PortIndex> take_offenders() override { return std::exchange(offenders_, {}); }
  void give_back(PortIndex port) override;
  void leave(PortIndex port) override;
  [[nodiscard]] uint32_t mtu_bytes() const override { return mtu_bytes_; }
  [[nodiscard]] std::vector<Pair> take_new_pairs() override { return pairs_.take_new(); }
  void note_link(const Pair& pair, LinkState state) override { pairs_.note(pair, state); }
  [[nodiscard]] PortSet linked_to(PortIndex port) override { return pairs_.linked_to(port); }

  /// Receives and forwards pending frames. Returns true if a frame moved.
  bool turn();
  /// Finds rings whose doorbell was lost: any process of the wire may write to the inbox. Looks once in
  /// kLookNs.
  void look_after(TimeNs now);
  static constexpr TimeNs kLookNs = 1'000'000'000;
  /// Sets whether every sender must ring from now on (true) or need not (false).
  void set_asleep(bool asleep);
  /// Whether the ports must be polled: no doorbell rings for the uplink's frames, nor when a slow port has
  /// room again.
  [[nodiscard]] bool needs_polling() const { return uplink_.has_value() || !queued_.empty(); }

  [[nodiscard]] const SwitchCounters& counters() const { return counters_; }

 private:
  static constexpr size_t kBurst = 64;

  struct Port {
    std::unique_ptr<glue::SharedRing> ring;      ///< a seat's
    std::unique_ptr<glue::EthernetPort> uplink;  ///< or the uplink's port
    bool taken = false;
    bool is_queued = false;  ///< in queued_
    bool is_offender = false;
    uint64_t last_taken = 0;
    std::vector<rte_mbuf*> waiting;  ///< counted by room_
    uint64_t dropped = 0;            ///< since the port last took a frame
  };

  [[nodiscard]] std::optional<PortIndex> find_free() const;
  /// Receives one burst; returns its length.
  size_t receive(PortIndex from);
  void note_offender(PortIndex port);
  void forward(rte_mbuf* frame, PortIndex from);
  void note_pair(std::span<const uint8_t> frame, PortIndex from, PortIndex to);
  void forward_marker(rte_mbuf* frame, const wire::LinkMarker& marker, PortIndex from);
  void note_connection(rte_mbuf* frame, PortIndex from);
  void send_as(PortIndex from, std::span<const uint8_t> bytes);
  [[nodiscard]] bool is_up(const Port& port) const;
  [[nodiscard]] bool any_link_up(const PortSet& ports) const;
  void send_answer(rte_mbuf* question, PortIndex to);
  void put(rte_mbuf* frame, PortIndex to);
  size_t flush_all();
  size_t flush(PortIndex index);
  void note_drop(PortIndex to, WaitingRoom::Admission why);
  void drop_waiting(PortIndex index);
  void free_port(PortIndex index);

  const glue::Config& config_;
  rte_mempool* const pool_;
  StationTable stations_;
  OpenConnections connections_;
  LinkedPairs pairs_;
  WaitingRoom room_;
  glue::ActiveRings rings_;
  std::vector<Port> ports_{kMaxPorts};
  std::vector<PortIndex> queued_;  ///< ports with frames that wait
  std::vector<PortIndex> offenders_;
  std::optional<PortIndex> uplink_;
  uint32_t mtu_bytes_ = glue::kWireMtuBytes;
  size_t ports_taken_ = 0;
  uint64_t seats_taken_ = 0;
  TimeNs next_look_ = 0;
  SwitchCounters counters_;
};

}  // namespace faultline::switching
