// SPDX-License-Identifier: BSD-3-Clause
// The switch's data path: a ring in shared memory for each seat, an optional port of DPDK as the uplink, and
// forwarding between them. One thread runs it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/switch/deficit_round_robin.hpp"
#include "apps/switch/linked_pairs.hpp"
#include "apps/switch/open_connections.hpp"
#include "apps/switch/rate_limit.hpp"
#include "apps/switch/seats.hpp"
#include "apps/switch/stations.hpp"
#include "apps/switch/status.hpp"
#include "apps/switch/uplink/exception_tap.hpp"
#include "apps/switch/uplink/uplink.hpp"
#include "apps/switch/waiting_room.hpp"
#include "pmd_glue/config/config.hpp"
#include "pmd_glue/direct/active_rings.hpp"
#include "pmd_glue/direct/shared_ring.hpp"
#include "pmd_glue/wires/inbox.hpp"
#include "stack/wire/link/neighbour_link.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace faultline::switching {

class FrameSwitch final : public Seats {
 public:
  /// EAL must be running. `inbox` is the switch's, in which its processes ring.
  FrameSwitch(const glue::Config& config, glue::Inbox& inbox);
  ~FrameSwitch() override;
  FrameSwitch(const FrameSwitch&) = delete;
  FrameSwitch& operator=(const FrameSwitch&) = delete;

  [[nodiscard]] bool open_uplink(const glue::DeviceConfig& device, std::string& error);
  /// Gives the host's address on the uplink to the programs. `exception` names the tap to the kernel; empty:
  /// none. Call after open_uplink() and before programs attach.
  [[nodiscard]] bool open_host(const glue::DeviceConfig& device, const std::string& exception,
                               std::string& error);

  /// Call before programs attach.
  void set_rates(const Rates& rates);

  void with_stations(const std::function<void(StationTable&)>& use) override { use(stations_); }
  [[nodiscard]] std::optional<PortIndex> take_port(std::optional<PortIndex> wanted,
                                                   std::string& error) override;
  [[nodiscard]] bool begin_ring(PortIndex port, int memory, std::unique_ptr<glue::Inbox> inbox) override;
  [[nodiscard]] std::vector<PortIndex> take_offenders() override { return std::exchange(offenders_, {}); }
  void give_back(PortIndex port) override;
  void leave(PortIndex port) override;
  [[nodiscard]] uint32_t mtu_bytes() const override { return mtu_bytes_; }
  [[nodiscard]] std::optional<bool> take_uplink_change() override {
    return std::exchange(uplink_change_, std::nullopt);
  }
  void describe(SwitchStatus& status) const override;
  [[nodiscard]] std::vector<Pair> take_new_pairs() override { return pairs_.take_new(); }
  void note_link(const Pair& pair, LinkState state) override { pairs_.note(pair, state); }
  [[nodiscard]] PortSet linked_to(PortIndex port) override { return pairs_.linked_to(port); }

  /// Receives and forwards pending frames. Returns true if a frame moved.
  bool turn(TimeNs now);
  /// A descriptor that is readable while the kernel's frames wait at the exception port; -1: there is none.
  [[nodiscard]] int exception_descriptor() const {
    const auto& tap = ports_[kExceptionPort].tap;
    return tap != nullptr ? tap->descriptor() : -1;
  }
  /// The descriptor is readable: the next turns receive, until kExceptionTurns have found no frame. In all
  /// others that would be a system call for nothing.
  void expect_exception_frames() { exception_turns_ = kExceptionTurns; }
  /// A descriptor that is readable while frames wait at an uplink by sockets; -1: there is none.
  [[nodiscard]] int uplink_descriptor() const {
    const auto& uplink = ports_[kUplinkPort].uplink;
    return uplink != nullptr ? uplink->descriptor() : -1;
  }
  /// Finds rings whose doorbell was lost: any process of the wire may write to the inbox. Looks once in
  /// kLookNs. Looks at the state of an uplink by sockets once in kUplinkLookNs.
  void look_after(TimeNs now);
  static constexpr TimeNs kLookNs = 1'000'000'000;
  static constexpr TimeNs kUplinkLookNs = 20'000'000;
  /// Sets whether every sender must ring from now on (true) or need not (false).
  void set_asleep(bool asleep);
  /// Whether the ports must be polled: no doorbell rings for the frames of an uplink without a descriptor,
  /// nor when a slow port has room again, nor when a rate lets a frame pass.
  [[nodiscard]] bool needs_polling() const {
    return (uplink_ && uplink_descriptor() < 0) || !queued_.empty() || !shares_.is_empty();
  }

  [[nodiscard]] const SwitchCounters& counters() const { return counters_; }

 private:
  static constexpr size_t kBurst = 64;
  /// Frames of seats that a turn forwards, between two looks at the uplink.
  static constexpr size_t kFramesOfTurn = 128;
  /// Pause between two lines about the drops of a port: a flood from the uplink must not fill the log.
  static constexpr TimeNs kComplaintNs = 10'000'000'000;
  /// Turns between two looks of the main loop at the descriptor, so that a TCP connection need not wait for
  /// one.
  static constexpr size_t kExceptionTurns = 64;
  /// Frames that wait for the uplink while seats are read. More would delay a program behind others' frames.
  static constexpr size_t kUplinkDepth = 64;

  struct Port {
    std::unique_ptr<glue::SharedRing> ring;  ///< a seat's
    std::unique_ptr<Uplink> uplink;
    std::unique_ptr<ExceptionTap> tap;
    bool taken = false;
    bool is_queued = false;  ///< in queued_
    bool is_offender = false;
    uint64_t last_taken = 0;
    std::deque<rte_mbuf*> backlog;   ///< read from the ring, to be forwarded
    RateLimit rate;                  ///< a seat's
    bool is_rate_limited = false;    ///< the backlog's first frame waits for `rate`
    std::vector<rte_mbuf*> waiting;  ///< counted by room_
    TimeNs complained_at = 0;        ///< time of the last line about its drops; 0: none
    PortCounters counters;
  };

  [[nodiscard]] std::optional<PortIndex> find_free() const;
  /// Receives and forwards one burst of the uplink or the exception port; returns its length.
  size_t receive(PortIndex from);
  /// Reads a burst of the seat's ring if no frame of the last one is left.
  void read_ring(PortIndex from);
  /// Forwards the first frame of a seat's backlog if it has at most `most_bytes` and its port takes it.
  DeficitRoundRobin::Step forward_first(PortIndex from, uint32_t most_bytes);
  /// Whether a frame of the seat for the uplink must wait. Takes its bytes from the seat's rate if not.
  [[nodiscard]] bool must_wait(Port& port, uint32_t bytes);
  void drop_stuck_frames();
  void look_at_uplink(TimeNs now);
  void count_drop(PortIndex from, Drop reason);
  [[nodiscard]] size_t transmit(Port& port);
  void note_offender(PortIndex port);
  void forward(rte_mbuf* frame, PortIndex from);
  void forward(rte_mbuf* frame, PortIndex from, const Verdict& verdict);
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
  void drop_backlog(PortIndex index);
  void free_port(PortIndex index);

  const glue::Config& config_;
  rte_mempool* const pool_;
  StationTable stations_;
  OpenConnections connections_;
  LinkedPairs pairs_;
  WaitingRoom room_;
  DeficitRoundRobin shares_;
  Rates rates_;
  RateLimit uplink_rate_;
  TimeNs now_ = 0;  ///< of this turn
  glue::ActiveRings rings_;
  std::vector<Port> ports_{kMaxPorts};
  std::vector<PortIndex> queued_;  ///< ports with frames that wait
  std::vector<PortIndex> offenders_;
  std::optional<PortIndex> uplink_;
  size_t exception_turns_ = 0;  ///< turns left that look at the exception port
  bool takes_nothing_ = false;  ///< the uplink, in this turn
  std::string uplink_name_, exception_name_;
  uint32_t mtu_bytes_ = glue::kWireMtuBytes;
  size_t ports_taken_ = 0;
  uint64_t seats_taken_ = 0;
  uint64_t uplink_sent_ = 0, uplink_sent_before_ = 0;  ///< frames; at the last look
  TimeNs next_look_ = 0;
  TimeNs next_uplink_look_ = 0;
  bool is_uplink_up_ = false;  ///< by sockets, at the last look
  std::optional<bool> uplink_change_;
  SwitchCounters counters_;
};

}  // namespace faultline::switching
