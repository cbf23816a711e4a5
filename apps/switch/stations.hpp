// SPDX-License-Identifier: BSD-3-Clause
// The stations on a wire, and the destination of each frame. A station is an address (MAC and IP) and usually
// has one port. Processes that share an address share a station: the range of the destination QPN then
// selects the port, and CM messages are routed by listener and communication ID. Sockets, clocks and ports
// are handled elsewhere.
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
#include <unordered_map>
#include <vector>

#include "apps/switch/uplink/outside_groups.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/link/neighbours.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"
#include "stack/wire/link/steering.hpp"

namespace faultline::switching {

using PortIndex = uint16_t;
/// The ports: the seats, the uplink, and the exception port to the kernel.
inline constexpr PortIndex kUplinkPort = glue::kMostSeats;
inline constexpr PortIndex kExceptionPort = glue::kMostSeats + 1;
inline constexpr size_t kMaxPorts = glue::kMostSeats + 2;
using PortSet = std::bitset<kMaxPorts>;
/// Calls `use` for each port of a set, in order.
template <typename Use>
void for_each_port(const PortSet& ports, Use use) {
  for (size_t port = ports._Find_first(); port < kMaxPorts; port = ports._Find_next(port))
    use(static_cast<PortIndex>(port));
}

/// Reason why a frame was dropped; each is a counter.
enum class Drop : uint8_t {
  none,
  runt,
  foreign_source,   ///< MAC address is not the sender's; or is one of ours, from the uplink
  foreign_address,  ///< IP address is not the sender's; or is one of ours, from the uplink
  unknown_address,  ///< no station has it, and there is no uplink
  own_address,      ///< the sender's own address, which no other port shares
  unknown_range,    ///< QPN of a process that has ended
  no_listener,      ///< no port joined the group
  kernels_own,      ///< a program's frame under the host's address that only the kernel may send
  not_for_sockets,  ///< the uplink's sockets send RoCEv2 of the host's addresses only
  count_
};
[[nodiscard]] const char* name_of(Drop drop);

struct Verdict {
  PortSet to;              ///< includes the sender's port only if its address is shared
  Drop drop = Drop::none;  ///< valid if `to` is empty
  /// The switch answers on behalf of the station with the ports `to`: StationTable::answer.
  bool answer = false;
};

class StationTable {
 public:
  StationTable();
  /// First address to assign; by default 198.18.1.1.
  void begin_at(uint32_t ipv4) { first_given_out_ = ipv4; }
  ~StationTable();
  StationTable(const StationTable&) = delete;
  StationTable& operator=(const StationTable&) = delete;

  /// Port for frames whose destination is not a station here.
  void set_uplink(PortIndex port) { uplink_ = port; }
  /// The host's address on the uplink: programs that ask for no address share it. Call before attach().
  void set_host(const glue::IpNetwork& address, const wire::MacAddress& mac);
  /// The same with all addresses that the sockets of the uplink have, at most kMostHostAddresses. The kernel
  /// has them too. Call after set_uplink().
  void set_host_of_sockets(std::span<const glue::IpNetwork> addresses, const wire::MacAddress& mac,
                           uint32_t window_packets);
  /// Whether the sockets' interface and address are up; seats are granted with it.
  void note_uplink_state(bool is_up) { uplink_up_ = is_up; }
  /// Joins there each group that a port joins, until the last port leaves it. Call before attach().
  void set_outside_groups(OutsideGroups& groups) { outside_groups_ = &groups; }
  /// Port of the kernel, which has the host's address too: it gets what is not RoCEv2. Call after set_host().
  void set_exception(PortIndex port) { exception_ = port; }

  // --- seats ---

  /// Gives a port what the request asks for. Returns an errno value, and one line in `why` if it is not 0.
  /// `pid` is named in later conflicts. EADDRINUSE: `grant` describes the address without a seat, unless the
  /// request was to share it.
  [[nodiscard]] int attach(PortIndex port, const glue::SwitchRequest& request, int pid,
                           glue::SwitchGrant& grant, std::string& why);
  /// Releases everything that the port had.
  void detach(PortIndex port);
  /// Returns a port that has the requested address, so that attach would refuse it.
  [[nodiscard]] std::optional<PortIndex> holder_of(const glue::SwitchRequest& request) const;
  /// Limits on claimed services and joined groups per seat. Requests beyond them fail, so the switch's memory
  /// is bounded.
  static constexpr size_t kMostServices = 8192;
  static constexpr size_t kMostGroups = 1024;
  /// Returns 0, EADDRINUSE if another sharer of the address has the service, or ENOMEM beyond kMostServices.
  [[nodiscard]] int claim_service(PortIndex port, uint64_t service_id);
  void release_service(PortIndex port, uint64_t service_id);
  /// Returns 0, ENOMEM beyond kMostGroups, or the errno of an uplink that cannot join the group.
  [[nodiscard]] int join(PortIndex port, const wire::Gid& group);
  void leave(PortIndex port, const wire::Gid& group);

  // --- frames ---

  [[nodiscard]] Verdict decide(std::span<const uint8_t> frame, PortIndex from);
  /// Writes the station's answer to a frame for which decide() set `answer`. Returns its length; 0: none.
  [[nodiscard]] size_t answer(std::span<const uint8_t> frame, TimeNs now, std::span<uint8_t> reply);

 private:
  struct Station;
  struct Seat {
    Station* station = nullptr;
    uint32_t range = 0;
    int pid = 0;
    size_t services = 0, groups = 0;
  };

  void describe(const Station& station, glue::SwitchGrant& grant) const;
  [[nodiscard]] Station* find(uint32_t ipv4) const;
  [[nodiscard]] Station* find(const wire::MacAddress& mac) const;
  [[nodiscard]] Station* owner_of(const wire::Gid& gid) const;
  [[nodiscard]] uint32_t free_address() const;
  [[nodiscard]] uint32_t wanted_address(const glue::SwitchRequest& request) const;
  [[nodiscard]] bool is_of_host(const glue::SwitchRequest& request) const;
  [[nodiscard]] Station& add_station(uint32_t ipv4, bool is_shared);
  [[nodiscard]] Station& add_station(std::span<const glue::IpNetwork> addresses, const wire::MacAddress& mac,
                                     bool is_shared, bool has_link_local);
  void remove_station(Station* station);
  /// Removes the groups that no port is in.
  void leave_empty_groups();
  /// Returns 0 if all ranges are taken.
  [[nodiscard]] uint32_t take_range(uint32_t wanted);
  /// Returns whether the frame's IP addresses, and those in an ARP or neighbour message, belong to the
  /// sender. For the uplink and the kernel `sender` is nullptr: returns whether no station here has them,
  /// except `also`.
  [[nodiscard]] bool has_right_addresses(std::span<const uint8_t> frame, wire::FrameKind kind,
                                         const Station* sender, const Station* also = nullptr) const;
  [[nodiscard]] Verdict forward_from_kernel(std::span<const uint8_t> frame,
                                            const wire::EthernetAddresses& ethernet) const;
  /// Forwards what the host's address receives; nullopt: as to any shared address.
  [[nodiscard]] std::optional<Verdict> forward_to_kernel(std::span<const uint8_t> frame,
                                                         wire::FrameKind kind) const;
  [[nodiscard]] Verdict forward_to_uplink(PortIndex from) const;
  /// As decide(), for an uplink that takes every frame.
  [[nodiscard]] Verdict route(std::span<const uint8_t> frame, wire::FrameKind kind,
                              const wire::EthernetAddresses& ethernet, PortIndex from);
  [[nodiscard]] Verdict to_station(Station& station, std::span<const uint8_t> frame, wire::FrameKind kind,
                                   PortIndex from) const;
  [[nodiscard]] Verdict forward_to_shared(Station& station, std::span<const uint8_t> frame,
                                          PortIndex from) const;
  [[nodiscard]] Verdict forward_to_all(std::span<const uint8_t> frame, wire::FrameKind kind,
                                       PortIndex from) const;
  /// Returns the station that an ARP request or neighbour solicitation asks for, or nullptr.
  [[nodiscard]] Station* asked(std::span<const uint8_t> frame, wire::FrameKind kind) const;

  std::optional<PortIndex> uplink_, exception_;
  Station* host_ = nullptr;  ///< of stations_, also without ports
  bool by_sockets_ = false;  ///< the uplink's sockets have the addresses of host_
  bool uplink_up_ = false;
  uint32_t window_packets_ = 0;
  std::vector<std::unique_ptr<Station>> stations_;
  // The same by address.
  std::unordered_map<uint32_t, Station*> by_ipv4_;
  std::unordered_map<uint64_t, Station*> by_mac_;
  std::array<Seat, kMaxPorts> seats_{};
  uint32_t first_given_out_ = 0xc6120101;  ///< 198.18.1.1
  // Of processes that share an address. Freed ranges are reused as late as possible: peers may not know yet
  // that the process has ended.
  std::vector<uint32_t> free_ranges_;
  std::map<std::array<uint8_t, 16>, PortSet> groups_;
  OutsideGroups* outside_groups_ = nullptr;  ///< nullptr: the uplink, if any, receives every group
};

}  // namespace faultline::switching
