// SPDX-License-Identifier: BSD-3-Clause
// Who is on a wire, and whose a frame is. A station is an address (MAC and IP); mostly one port has it, but
// processes that share an address share a station: there the range of the destination QPN says whose a packet
// is, and connection management messages go by listener and communication id. Sockets, clocks and ports are
// others' business.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/link/neighbours.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"
#include "stack/wire/link/steering.hpp"

namespace faultline::switching {

/// DPDK's RTE_MAX_ETHPORTS in Debian's build.
inline constexpr size_t kMaxPorts = 32;
using PortSet = std::bitset<kMaxPorts>;
using PortIndex = uint8_t;

/// Why a frame went nowhere: each is a counter.
enum class Drop : uint8_t {
  none,
  runt,
  foreign_source,   ///< of a MAC address that is not the sender's; or ours, from the uplink
  foreign_address,  ///< of an IP address that is not the sender's; or ours, from the uplink
  unknown_address,  ///< nobody's here, and there is no uplink
  own_address,      ///< to its sender's own address, which nobody else shares
  unknown_range,    ///< to a QPN of a process that is gone
  no_listener,      ///< nobody joined that group
  count_
};
[[nodiscard]] const char* name_of(Drop drop);

struct Verdict {
  PortSet to;              ///< without the port that it came from, unless its address is shared
  Drop drop = Drop::none;  ///< where `to` is empty
  /// The switch answers, for the station whose ports `to` are: StationTable::answer.
  bool answer = false;
};

class StationTable {
 public:
  StationTable();
  /// The first address to give out; by default 198.18.1.1.
  void begin_at(uint32_t ipv4) { first_given_out_ = ipv4; }
  ~StationTable();
  StationTable(const StationTable&) = delete;
  StationTable& operator=(const StationTable&) = delete;

  /// Frames for nobody here go there.
  void set_uplink(PortIndex port) { uplink_ = port; }

  // --- seats ---

  /// A port gets what the request asks for: an errno value, and one line in `why` where that is not 0. `pid`
  /// is told to those who ask for the same. `socket` of the grant is the caller's to fill in.
  [[nodiscard]] int attach(PortIndex port, const glue::SwitchRequest& request, int pid,
                           glue::SwitchGrant& grant, std::string& why);
  /// Everything that the port had is free.
  void detach(PortIndex port);
  /// Who has the address that the request asks for, so that attach would refuse it.
  [[nodiscard]] std::optional<PortIndex> holder_of(const glue::SwitchRequest& request) const;
  /// What a seat may claim, and join. A program that wants more fails; the switch does not grow with it.
  static constexpr size_t kMostServices = 8192;
  static constexpr size_t kMostGroups = 1024;
  /// 0, EADDRINUSE where another sharer of the address has it, or ENOMEM beyond kMostServices.
  [[nodiscard]] int claim_service(PortIndex port, uint64_t service_id);
  void release_service(PortIndex port, uint64_t service_id);
  /// 0, or ENOMEM beyond kMostGroups.
  [[nodiscard]] int join(PortIndex port, const wire::Gid& group);
  void leave(PortIndex port, const wire::Gid& group);

  // --- frames ---

  [[nodiscard]] Verdict decide(std::span<const uint8_t> frame, PortIndex from);
  /// Writes the station's answer to a frame that decide() said is to be answered, and returns its length; 0:
  /// none.
  [[nodiscard]] size_t answer(std::span<const uint8_t> frame, TimeNs now, std::span<uint8_t> reply);

 private:
  struct Station;
  struct Seat {
    Station* station = nullptr;
    uint32_t range = 0;
    int pid = 0;
    size_t services = 0, groups = 0;
  };

  [[nodiscard]] Station* find(uint32_t ipv4) const;
  [[nodiscard]] Station* find(const wire::MacAddress& mac) const;
  [[nodiscard]] Station* owner_of(const wire::Gid& gid) const;
  [[nodiscard]] uint32_t free_address() const;
  [[nodiscard]] uint32_t take_range(uint32_t wanted);
  /// True where the frame's IP addresses, and those in an ARP or neighbour message, belong to the sender. For
  /// the uplink `sender` is nullptr: true where no station here has them.
  [[nodiscard]] bool has_right_addresses(std::span<const uint8_t> frame, wire::FrameKind kind,
                                         const Station* sender) const;
  [[nodiscard]] Verdict to_outside(PortIndex from) const;
  [[nodiscard]] Verdict to_station(Station& station, std::span<const uint8_t> frame, wire::FrameKind kind,
                                   PortIndex from) const;
  [[nodiscard]] Verdict to_sharer(Station& station, std::span<const uint8_t> frame, PortIndex from) const;
  [[nodiscard]] Verdict to_everybody(std::span<const uint8_t> frame, wire::FrameKind kind,
                                     PortIndex from) const;
  /// Whose address a question is for.
  [[nodiscard]] Station* asked(std::span<const uint8_t> frame, wire::FrameKind kind) const;

  std::optional<PortIndex> uplink_;
  std::vector<std::unique_ptr<Station>> stations_;
  std::array<Seat, kMaxPorts> seats_{};
  uint32_t first_given_out_ = 0xc6120101;  ///< 198.18.1.1
  // What a process had is given out again as late as possible: its peers may not know yet that it is gone.
  std::vector<uint32_t> free_ranges_;
  std::map<std::array<uint8_t, 16>, PortSet> groups_;
};

}  // namespace faultline::switching
