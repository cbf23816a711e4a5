// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/stations.hpp"

#include <algorithm>
#include <cerrno>

#include <spdlog/fmt/fmt.h>

#include "stack/wire/link/address_text.hpp"
#include "stack/wire/link/neighbour_link.hpp"
#include "stack/wire/mad/mad_cm.hpp"

namespace faultline::switching {
namespace {

using glue::SwitchGrant;
using glue::SwitchRequest;
using wire::FrameKind;
using wire::Gid;
using wire::MacAddress;

// The network for benchmark tests (RFC 2544), which is not routed: each wire is a separate network with this
// prefix. Sides (`--side a`) have its first addresses; assigned addresses follow.
constexpr uint32_t kNetwork = 0xc6120000;  // 198.18.0.0
constexpr uint32_t kPrefixBits = 15;
constexpr uint32_t kFirstGivenOut = kNetwork + 0x101;
constexpr uint32_t kLastGivenOut = kNetwork + 0x1fffe;
// Address of programs that share one without naming it.
constexpr uint32_t kCommonAddress = kNetwork + 0xff;

bool is_host(uint32_t ipv4) {
  constexpr uint32_t kHostMask = (1U << (32 - kPrefixBits)) - 1;
  return (ipv4 & ~kHostMask) == kNetwork && (ipv4 & kHostMask) != 0 && (ipv4 & kHostMask) != kHostMask;
}

bool is_neighbour_message(std::span<const uint8_t> frame) {
  wire::NeighbourMessage message;
  return wire::parse_neighbour_message(frame, message);
}

}  // namespace

const char* name_of(Drop drop) {
  switch (drop) {
    case Drop::none:
    case Drop::count_:
      break;
    case Drop::runt:
      return "runt";
    case Drop::foreign_source:
      return "foreign_source";
    case Drop::foreign_address:
      return "foreign_address";
    case Drop::unknown_address:
      return "unknown_address";
    case Drop::own_address:
      return "own_address";
    case Drop::unknown_range:
      return "unknown_range";
    case Drop::no_listener:
      return "no_listener";
    case Drop::kernels_own:
      return "kernels_own";
    case Drop::not_for_sockets:
      return "not_for_sockets";
  }
  return "none";
}

/// Destination ports of the latest connection requests. A retransmitted request is sent to the same port
/// again. Otherwise one sharer could reject it before another listens, and that one accept it; the client
/// would receive both answers.
class LatestRequests {
 public:
  struct Request {
    wire::MacAddress source;
    uint32_t requester_id = 0;
    uint64_t transaction_id = 0;
    bool operator==(const Request&) const = default;
  };

  [[nodiscard]] PortIndex find_or_give(const Request& request, PortIndex from, PortIndex to) {
    for (const Given& given : given_)
      if (given.to != kMaxPorts && given.request == request) return given.to;
    given_.resize(kMost);
    given_[next_] = {request, from, to};
    next_ = (next_ + 1) % given_.size();
    return to;
  }
  void forget(PortIndex port) {
    for (Given& given : given_)
      if (given.from == port || given.to == port) given.to = kMaxPorts;
  }

 private:
  struct Given {
    Request request;
    PortIndex from = 0, to = kMaxPorts;
  };
  // As many requests as one sharer's program may have under way (1,000 connections at once).
  static constexpr size_t kMost = 1024;
  std::vector<Given> given_;  ///< only a shared address needs it
  size_t next_ = 0;
};

namespace {

/// Returns the first address of IPv4; 0.0.0.0/0 if there is none.
glue::IpNetwork first_ipv4(std::span<const glue::IpNetwork> addresses) {
  const auto found =
      std::ranges::find_if(addresses, [](const glue::IpNetwork& address) { return address.gid.is_ipv4(); });
  return found != addresses.end() ? *found : glue::IpNetwork{Gid::from_ipv4(0), glue::kIpv4PrefixBits};
}

}  // namespace

struct StationTable::Station {
  Station(std::span<const glue::IpNetwork> networks_of_host, const MacAddress& mac, bool is_shared,
          bool has_link_local)
      : networks(networks_of_host.begin(), networks_of_host.end()),
        ipv4(first_ipv4(networks).gid.ipv4()),
        prefix_bits(first_ipv4(networks).prefix_bits - glue::kIpv4PrefixBits),
        shared(is_shared),
        addresses(mac, {}, networks, {}, has_link_local),
        neighbours(addresses) {
    port_of_range.fill(kMaxPorts);
  }

  const std::vector<glue::IpNetwork> networks;
  const uint32_t ipv4;         ///< the first one; 0: none
  const uint32_t prefix_bits;  ///< of IPv4
  const bool shared;
  const glue::AddressTable addresses;
  glue::NeighbourCache neighbours;  ///< answers for the station
  PortSet ports;
  PortIndex first = 0;  ///< port for traffic that is for the address as such
  std::array<PortIndex, 1U << glue::kRangeBits> port_of_range{};
  std::map<uint64_t, PortIndex> services;
  LatestRequests requests;

  /// Fills in what concerns an uplink whose sockets have the addresses.
  void describe(SwitchGrant& grant, bool is_uplink_up, uint32_t window_packets) const {
    grant.by_sockets = 1;
    grant.uplink_up = is_uplink_up ? 1 : 0;
    grant.window_packets = window_packets;
    grant.address_count = static_cast<uint32_t>(networks.size());
    for (size_t i = 0; i < networks.size(); ++i)
      grant.addresses[i] = {networks[i].gid.bytes, networks[i].prefix_bits};
  }
};

StationTable::StationTable() {
  for (uint32_t range = glue::kFirstRange; range <= glue::kLastRange; ++range) free_ranges_.push_back(range);
}

StationTable::~StationTable() = default;

// ---- seats ----

StationTable::Station* StationTable::find(uint32_t ipv4) const {
  const auto found = by_ipv4_.find(ipv4);
  return found == by_ipv4_.end() ? nullptr : found->second;
}

StationTable::Station* StationTable::find(const MacAddress& mac) const {
  const auto found = by_mac_.find(wire::mac_word(mac.bytes.data()));
  return found == by_mac_.end() ? nullptr : found->second;
}

StationTable::Station* StationTable::owner_of(const Gid& gid) const {
  if (gid.is_ipv4()) return find(gid.ipv4());
  for (const auto& station : stations_)
    if (station->addresses.is_own(gid)) return station.get();
  return nullptr;
}

uint32_t StationTable::free_address() const {
  // There are more addresses than ports.
  uint32_t ipv4 = first_given_out_;
  while (find(ipv4) != nullptr) ipv4 = ipv4 == kLastGivenOut ? kFirstGivenOut : ipv4 + 1;
  return ipv4;
}

StationTable::Station& StationTable::add_station(uint32_t ipv4, bool is_shared) {
  const glue::IpNetwork address{Gid::from_ipv4(ipv4),
                                static_cast<uint8_t>(glue::kIpv4PrefixBits + kPrefixBits)};
  return add_station({&address, 1}, glue::mac_of(address.gid), is_shared, true);
}

StationTable::Station& StationTable::add_station(std::span<const glue::IpNetwork> addresses,
                                                 const MacAddress& mac, bool is_shared, bool has_link_local) {
  Station& station =
      *stations_.emplace_back(std::make_unique<Station>(addresses, mac, is_shared, has_link_local));
  for (const glue::IpNetwork& address : station.networks)
    if (address.gid.is_ipv4()) by_ipv4_[address.gid.ipv4()] = &station;
  by_mac_[wire::mac_word(station.addresses.mac().bytes.data())] = &station;
  return station;
}

void StationTable::set_host(const glue::IpNetwork& address, const MacAddress& mac) {
  host_ = &add_station({&address, 1}, mac, true, true);
}

void StationTable::set_host_of_sockets(std::span<const glue::IpNetwork> addresses, const MacAddress& mac,
                                       uint32_t window_packets) {
  host_ =
      &add_station(addresses.first(std::min(addresses.size(), glue::kMostHostAddresses)), mac, true, false);
  by_sockets_ = true;
  window_packets_ = window_packets;
}

uint32_t StationTable::wanted_address(const SwitchRequest& request) const {
  if (request.ipv4 != 0) return request.ipv4;
  if (host_ != nullptr) return host_->ipv4;
  return request.shared != 0 ? kCommonAddress : 0;
}

bool StationTable::is_of_host(const SwitchRequest& request) const {
  return host_ != nullptr && (request.ipv4 == 0 || find(request.ipv4) == host_);
}

void StationTable::remove_station(Station* station) {
  by_ipv4_.erase(station->ipv4);
  by_mac_.erase(wire::mac_word(station->addresses.mac().bytes.data()));
  std::erase_if(stations_, [&](const auto& other) { return other.get() == station; });
}

uint32_t StationTable::take_range(uint32_t wanted) {
  if (free_ranges_.empty()) return 0;
  const auto found = std::find(free_ranges_.begin(), free_ranges_.end(), wanted);
  const auto taken = found != free_ranges_.end() ? found : free_ranges_.begin();
  const uint32_t range = *taken;
  free_ranges_.erase(taken);
  return range;
}

std::optional<PortIndex> StationTable::holder_of(const SwitchRequest& request) const {
  const Station* station = find(wanted_address(request));
  if (station == nullptr || (station->shared && request.shared != 0)) return std::nullopt;
  if (station == host_) return std::nullopt;
  return station->first;
}

int StationTable::attach(PortIndex port, const SwitchRequest& request, int pid, SwitchGrant& grant,
                         std::string& why) {
  const uint32_t wanted = wanted_address(request);
  if (wanted != 0 && !is_host(wanted) && !is_of_host(request)) {
    why = fmt::format("{} is not an address of 198.18.0.0/15, which wires have", wire::text_of_ipv4(wanted));
    return EADDRNOTAVAIL;
  }
  if (const auto holder = holder_of(request)) {
    why = fmt::format("{} is taken by process {}{}", wire::text_of_ipv4(wanted), seats_[*holder].pid,
                      find(wanted)->shared  ? ", which shares it: start this one with --share too"
                      : request.shared != 0 ? ", which does not share it: start it with --share too"
                                            : ": start both with --share to have it twice");
    // A sharer's description has a range, which only a seat has.
    if (request.shared == 0) describe(*find(wanted), grant);
    return EADDRINUSE;
  }
  Station* station = is_of_host(request) ? host_ : wanted != 0 ? find(wanted) : nullptr;
  const bool shares = request.shared != 0 || is_of_host(request);
  const uint32_t range = shares ? take_range(request.range) : glue::kFirstRange;
  if (range == 0) {
    why = fmt::format("{} processes share addresses on this wire, which is all it can; start this one {}",
                      glue::kLastRange, is_of_host(request) ? "with --ip 198.18.A.B" : "without --share");
    return ENOSPC;
  }
  if (station == nullptr) station = &add_station(wanted != 0 ? wanted : free_address(), shares);
  if (station->ports.none()) station->first = port;
  station->ports.set(port);
  station->port_of_range[range] = port;
  seats_[port] = {.station = station, .range = range, .pid = pid};

  describe(*station, grant);
  grant.shared = station->shared ? 1 : 0;
  grant.range = range;
  return 0;
}

void StationTable::describe(const Station& station, SwitchGrant& grant) const {
  grant.ipv4 = station.ipv4;
  grant.prefix_bits = station.prefix_bits;
  grant.mac = station.addresses.mac().bytes;
  if (&station == host_ && by_sockets_) station.describe(grant, uplink_up_, window_packets_);
}

void StationTable::detach(PortIndex port) {
  Seat& seat = seats_[port];
  Station* station = seat.station;
  if (station == nullptr) return;
  for (auto& [group, ports] : groups_) ports.reset(port);
  leave_empty_groups();
  std::erase_if(station->services, [&](const auto& service) { return service.second == port; });
  station->port_of_range[seat.range] = kMaxPorts;
  station->ports.reset(port);
  for (const auto& other : stations_) other->requests.forget(port);
  if (station->shared) free_ranges_.push_back(seat.range);
  seat = {};
  if (station->ports.none()) {
    if (station != host_) remove_station(station);
  } else if (station->first == port) {
    station->first = static_cast<PortIndex>(station->ports._Find_first());
  }
}

int StationTable::claim_service(PortIndex port, uint64_t service_id) {
  Station* station = seats_[port].station;
  if (station == nullptr) return EINVAL;
  if (const auto service = station->services.find(service_id); service != station->services.end())
    return service->second == port ? 0 : EADDRINUSE;
  if (seats_[port].services == kMostServices) return ENOMEM;
  station->services.emplace(service_id, port);
  ++seats_[port].services;
  return 0;
}

void StationTable::release_service(PortIndex port, uint64_t service_id) {
  Station* station = seats_[port].station;
  if (station == nullptr) return;
  const auto service = station->services.find(service_id);
  if (service == station->services.end() || service->second != port) return;
  station->services.erase(service);
  --seats_[port].services;
}

int StationTable::join(PortIndex port, const Gid& group) {
  const auto found = groups_.find(group.bytes);
  if (found != groups_.end() && found->second.test(port)) return 0;
  if (seats_[port].groups == kMostGroups) return ENOMEM;
  if (found == groups_.end() && outside_groups_ != nullptr)
    if (const int error = outside_groups_->join_group(group); error != 0) return error;
  groups_[group.bytes].set(port);
  ++seats_[port].groups;
  return 0;
}

void StationTable::leave(PortIndex port, const Gid& group) {
  const auto found = groups_.find(group.bytes);
  if (found == groups_.end() || !found->second.test(port)) return;
  found->second.reset(port);
  --seats_[port].groups;
  leave_empty_groups();
}

void StationTable::leave_empty_groups() {
  std::erase_if(groups_, [this](const auto& group) {
    if (group.second.any()) return false;
    if (outside_groups_ != nullptr) outside_groups_->leave_group(Gid{group.first});
    return true;
  });
}

// ---- frames ----

Verdict StationTable::forward_to_uplink(PortIndex from) const {
  if (!uplink_ || *uplink_ == from) return {.to = {}, .drop = Drop::unknown_address};
  return {.to = PortSet{}.set(*uplink_)};
}

// The kernel forwards for others (containers, VMs), so any address but those of the wire's programs is right.
Verdict StationTable::forward_from_kernel(std::span<const uint8_t> frame,
                                          const wire::EthernetAddresses& ethernet) const {
  const Station* const sender = find(ethernet.source);
  if (sender != nullptr && sender != host_) return {.to = {}, .drop = Drop::foreign_source};
  const FrameKind kind = wire::classify(frame);
  if (!has_right_addresses(frame, kind, nullptr, host_)) return {.to = {}, .drop = Drop::foreign_address};
  const PortIndex from = *exception_;
  if (const Station* station = asked(frame, kind); station != nullptr && station != host_)
    return {.to = station->ports, .answer = true};
  if (wire::is_multicast(ethernet.destination)) return forward_to_uplink(from);
  Station* const station = find(ethernet.destination);
  if (station == nullptr) return forward_to_uplink(from);
  if (station == host_) return {.to = {}, .drop = Drop::own_address};
  return to_station(*station, frame, kind, from);
}

std::optional<Verdict> StationTable::forward_to_kernel(std::span<const uint8_t> frame, FrameKind kind) const {
  if (!exception_) return std::nullopt;
  const PortSet kernel = PortSet{}.set(*exception_);
  if (kind == FrameKind::roce) {
    // The kernel may have further addresses, with a RoCE stack of its own.
    const auto destination = wire::peek_destination_gid(frame);
    if (destination && host_->addresses.is_own(*destination)) return std::nullopt;
    return Verdict{.to = kernel};
  }
  const bool is_neighbours =
      kind == FrameKind::arp || (kind == FrameKind::ipv6_other && is_neighbour_message(frame));
  // The kernel answers the questions. Any program may have asked what another host answers.
  if (is_neighbours && asked(frame, kind) == nullptr) return Verdict{.to = host_->ports | kernel};
  return Verdict{.to = kernel};
}

Verdict StationTable::decide(std::span<const uint8_t> frame, PortIndex from) {
  const auto ethernet = wire::peek_ethernet(frame);
  if (!ethernet) return {.to = {}, .drop = Drop::runt};
  const FrameKind kind = wire::classify(frame);
  Verdict verdict = route(frame, kind, *ethernet, from);
  // Under another source address the kernel would send the payload as the host's own. The ICRC would not fit.
  const bool is_for_sockets = kind == FrameKind::roce && seats_[from].station == host_;
  if (by_sockets_ && uplink_ && verdict.to.test(*uplink_) && !is_for_sockets) {
    verdict.to.reset(*uplink_);
    verdict.drop = Drop::not_for_sockets;
  }
  return verdict;
}

Verdict StationTable::route(std::span<const uint8_t> frame, FrameKind kind,
                            const wire::EthernetAddresses& ethernet, PortIndex from) {
  if (from == exception_) return forward_from_kernel(frame, ethernet);
  const Station* sender = seats_[from].station;
  const bool right_source = from == uplink_ ? find(ethernet.source) == nullptr
                                            : sender != nullptr && sender->addresses.mac() == ethernet.source;
  if (!right_source) return {.to = {}, .drop = Drop::foreign_source};
  if (!has_right_addresses(frame, kind, sender)) return {.to = {}, .drop = Drop::foreign_address};
  // Otherwise a program could take part in the kernel's connections.
  if (sender != nullptr && sender == host_ && exception_ && kind != FrameKind::roce &&
      kind != FrameKind::arp && !is_neighbour_message(frame))
    return {.to = {}, .drop = Drop::kernels_own};
  if (wire::is_multicast(ethernet.destination)) return forward_to_all(frame, kind, from);
  Station* station = find(ethernet.destination);
  return station != nullptr ? to_station(*station, frame, kind, from) : forward_to_uplink(from);
}

// Stations trust the source address of received frames: a connected QP identifies its peer by it.
bool StationTable::has_right_addresses(std::span<const uint8_t> frame, FrameKind kind, const Station* sender,
                                       const Station* also) const {
  const auto is_right = [&](const Gid& gid) {
    if (sender != nullptr) return sender->addresses.is_own(gid);
    const Station* const owner = owner_of(gid);
    return owner == nullptr || owner == also;
  };
  const auto is_right_mac = [&](const MacAddress& mac) {
    if (sender != nullptr) return sender->addresses.mac() == mac;
    const Station* const owner = find(mac);
    return owner == nullptr || owner == also;
  };
  if (kind == FrameKind::other) return true;
  if (kind == FrameKind::arp) {
    wire::ArpPacket packet;
    return wire::parse_arp(frame, packet) && is_right_mac(packet.sender_mac) &&
           is_right(Gid::from_ipv4(packet.sender_ip));
  }
  const auto source = wire::peek_source_gid(frame);
  if (!source || !is_right(*source)) return false;
  wire::NeighbourMessage message;
  if (kind != FrameKind::ipv6_other || !wire::parse_neighbour_message(frame, message)) return true;
  const bool is_signaled = message.kind == wire::NeighbourMessageKind::advertisement;
  return (!message.has_link_address || is_right_mac(message.link_address)) &&
         (!is_signaled || is_right(message.target));
}

Verdict StationTable::to_station(Station& station, std::span<const uint8_t> frame, FrameKind kind,
                                 PortIndex from) const {
  if (!station.shared) {
    if (station.first == from) return {.to = {}, .drop = Drop::own_address};
    return {.to = PortSet{}.set(station.first)};
  }
  if (&station == host_) {
    if (const auto verdict = forward_to_kernel(frame, kind)) return *verdict;
    if (station.ports.none()) return {.to = {}, .drop = Drop::unknown_range};
  }
  switch (kind) {
    case FrameKind::roce:
      return forward_to_shared(station, frame, from);
    case FrameKind::arp:
    case FrameKind::ipv6_other:
      // A question is answered once, by the switch. An answer is forwarded to all sharers, any of which may
      // have asked.
      if (asked(frame, kind) != nullptr) return {.to = station.ports, .answer = true};
      if (kind == FrameKind::arp || is_neighbour_message(frame)) return {.to = station.ports};
      break;
    case FrameKind::ipv4_other:
    case FrameKind::other:
      break;
  }
  return {.to = PortSet{}.set(station.first)};
}

Verdict StationTable::forward_to_shared(Station& station, std::span<const uint8_t> frame,
                                        PortIndex from) const {
  const auto to_range = [&](uint32_t range) {
    const PortIndex port = station.port_of_range[range];
    if (port == kMaxPorts) return Verdict{.to = {}, .drop = Drop::unknown_range};
    return Verdict{.to = PortSet{}.set(port)};
  };
  const uint32_t qpn = wire::peek_destination_qpn(frame);
  if (qpn != wire::kManagementQpn) return to_range(qpn >> glue::kQpnRangeShift);
  const auto message = wire::peek_cm_message(frame);
  const auto communication = message ? wire::receiver_id(*message) : std::nullopt;
  if (communication) return to_range(*communication >> glue::kCommunicationRangeShift);
  // A requester that timed out knows no receiver's ID for its REJ (IBA 12.6.7.2, time-out). The sharer that
  // has the request matches it by the sender's ID; the others drop it.
  if (message && message->attribute() == wire::CmAttribute::rej) return {.to = station.ports};
  // A request without a listener is sent to one port, the station's first, which rejects it.
  const auto wanted = message ? wire::service_id(*message) : std::nullopt;
  if (!wanted) return {.to = PortSet{}.set(station.first)};
  const auto service = station.services.find(*wanted);
  const PortIndex listener = service != station.services.end() ? service->second : station.first;
  const LatestRequests::Request request{wire::peek_ethernet(frame)->source, wire::requester_id(*message),
                                        message->transaction_id()};
  return {.to = PortSet{}.set(station.requests.find_or_give(request, from, listener))};
}

Verdict StationTable::forward_to_all(std::span<const uint8_t> frame, FrameKind kind, PortIndex from) const {
  if (kind == FrameKind::roce) {
    const auto group = wire::peek_destination_gid(frame);
    const auto joined = group ? groups_.find(group->bytes) : groups_.end();
    PortSet to;
    if (joined != groups_.end()) to = joined->second;
    if (uplink_) to.set(*uplink_);
    to.reset(from);
    return {.to = to, .drop = to.none() ? Drop::no_listener : Drop::none};
  }
  const Station* const station = asked(frame, kind);
  if (station != nullptr && station == host_ && exception_ && seats_[from].station != host_)
    return {.to = PortSet{}.set(*exception_)};
  if (station != nullptr) {
    // A question for the sender's own address is an announcement: the switch does not answer it.
    if (seats_[from].station != station) return {.to = station->ports, .answer = true};
    return forward_to_uplink(from);
  }
  if (from != uplink_) return forward_to_uplink(from);
  PortSet all;
  // Programs under the host's address leave the network's broadcasts to the kernel.
  const bool is_neighbours = kind == FrameKind::arp || is_neighbour_message(frame);
  for (const auto& other : stations_)
    if (other.get() != host_ || !exception_ || is_neighbours) all |= other->ports;
  if (exception_) all.set(*exception_);
  return {.to = all, .drop = all.none() ? Drop::unknown_address : Drop::none};
}

StationTable::Station* StationTable::asked(std::span<const uint8_t> frame, FrameKind kind) const {
  if (kind == FrameKind::arp) {
    wire::ArpPacket packet;
    if (!wire::parse_arp(frame, packet) || packet.operation != wire::ArpOperation::request) return nullptr;
    return owner_of(Gid::from_ipv4(packet.target_ip));
  }
  wire::NeighbourMessage message;
  if (kind != FrameKind::ipv6_other || !wire::parse_neighbour_message(frame, message) ||
      message.kind != wire::NeighbourMessageKind::solicitation)
    return nullptr;
  return owner_of(message.target);
}

size_t StationTable::answer(std::span<const uint8_t> frame, TimeNs now, std::span<uint8_t> reply) {
  const FrameKind kind = wire::classify(frame);
  Station* station = asked(frame, kind);
  if (station == nullptr) return 0;
  if (kind == FrameKind::arp) return station->neighbours.on_arp(frame, now, reply);
  wire::NeighbourMessage message;
  if (!wire::parse_neighbour_message(frame, message)) return 0;
  return station->neighbours.on_neighbour_message(message, now, reply);
}

}  // namespace faultline::switching
