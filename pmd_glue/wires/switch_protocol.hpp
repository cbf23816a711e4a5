// SPDX-License-Identifier: BSD-3-Clause
// The protocol between a process and faultline-switch on the wire's control socket (SOCK_SEQPACKET, one
// message for each request and each answer). Both ends belong to one user on one host, so values are in host
// byte order. A connection represents a seat: it begins with `attach`, and its end frees the seat.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace faultline::glue {

inline constexpr uint32_t kSwitchMagic = 0x464c5357;  // "FLSW"
inline constexpr uint32_t kSwitchVersion = 4;

/// The start of every message, in this and all later versions.
struct SwitchHeader {
  uint32_t magic = kSwitchMagic;
  uint32_t version = kSwitchVersion;
};

enum class SwitchVerb : uint32_t {
  attach,
  claim_service,  ///< routes connection requests to this service to this process
  release_service,
  join_group,  ///< routes frames of this multicast group to this process
  leave_group,
  keep_link,  ///< to a new switch: this process has a direct link to the seat `port`
  end_link,   ///< this process has ended its link to the seat `port`
  bar_link,   ///< as end_link, because the peer broke the rules of the link: there is no other one
  status      ///< needs no seat; the answer has a file with the text of the switch's status
};

/// A request to attach is sent with these: the page of the process's Inbox, and the event that wakes it.
inline constexpr size_t kInboxDescriptors = 2;
/// The granted seat comes with these, and so does a link: the memory of its rings, and the other end's inbox.
inline constexpr size_t kLinkDescriptors = 1 + kInboxDescriptors;
/// The memory of a direct link's rings, and of a seat's (SharedRing).
inline constexpr size_t kLinkBytes = 252'000;
inline constexpr size_t kSeatBytes = 1'066'000;

/// The verb determines which fields are used.
struct SwitchRequest {
  SwitchHeader header;
  /// The answer repeats it, so that a late answer to an abandoned request is not taken for another request's.
  uint64_t number = 0;
  SwitchVerb verb = SwitchVerb::attach;
  uint32_t ipv4 = 0;    ///< host order; 0: any
  uint32_t shared = 0;  ///< not 0: the address may be shared with processes that set this too
  // Values that a crashed switch had granted, so that the address and QPNs stay those that peers know.
  uint32_t range = 0;  ///< 0: any
  uint32_t port = 0;   ///< valid if range is not 0; the peer's seat in requests on links
  uint32_t json = 0;   ///< of a status: not 0: as JSON
  uint64_t service_id = 0;
  std::array<uint8_t, 16> group{};
};

/// QPNs and communication ids of processes that share an address are divided alike: a range is their top six
/// bits. Ranges 0 and 63 contain reserved QPNs. A process that shares with none has kFirstRange by name only.
inline constexpr uint32_t kRangeBits = 6;
inline constexpr uint32_t kFirstRange = 1;
inline constexpr uint32_t kLastRange = (1U << kRangeBits) - 2;
inline constexpr uint32_t kQpnRangeShift = 24 - kRangeBits;
inline constexpr uint32_t kCommunicationRangeShift = 32 - kRangeBits;

/// The L3 MTU of a wire: a path MTU of 4096 plus headers.
inline constexpr uint32_t kWireMtuBytes = 4500;

/// Seats of a wire. In the inbox of a process the switch rings at kSwitchSeat, which no process has.
inline constexpr uint32_t kMostSeats = 1023;
inline constexpr uint32_t kSwitchSeat = kMostSeats;
/// The sides of a ring between the switch and a process (SharedRing).
inline constexpr uint32_t kSideOfSwitch = 0;
inline constexpr uint32_t kSideOfProcess = 1;

/// Addresses of a host at most, which an uplink by sockets gives to the programs.
inline constexpr size_t kMostHostAddresses = 16;

struct GrantedAddress {
  std::array<uint8_t, 16> gid{};
  uint8_t prefix_bits = 0;  ///< counted in the GID's 128 bits
  friend bool operator==(const GrantedAddress&, const GrantedAddress&) = default;
};

/// What the switch grants to a seat.
struct SwitchGrant {
  uint32_t ipv4 = 0;
  uint32_t prefix_bits = 0;
  uint32_t shared = 0;
  uint32_t range = 0;
  uint32_t port = 0;
  uint32_t mtu_bytes = 0;  ///< layer 3
  std::array<uint8_t, 6> mac{};
  std::array<uint8_t, 2> unused{};
  /// Not 0: the kernel has the seat's addresses too, and the uplink sends its packets by UDP sockets
  /// (wire::Checksums::by_socket). The members below are valid then.
  uint32_t by_sockets = 0;
  uint32_t uplink_up = 0;       ///< not 0: the sockets' interface and address are up
  uint32_t window_packets = 0;  ///< EthernetPort::most_window_packets() of the uplink
  uint32_t address_count = 0;
  std::array<GrantedAddress, kMostHostAddresses> addresses{};  ///< in the order of the device's GIDs

  [[nodiscard]] uint32_t first_qpn() const { return range << kQpnRangeShift; }
  [[nodiscard]] uint32_t last_qpn() const { return first_qpn() | ((1U << kQpnRangeShift) - 1); }
  [[nodiscard]] uint32_t communication_id_base() const { return range << kCommunicationRangeShift; }
  /// Bits that the process chooses.
  [[nodiscard]] uint32_t communication_id_mask() const { return (1U << kCommunicationRangeShift) - 1; }
};

/// What a message of the switch is.
enum class SwitchMessage : uint32_t {
  answer,
  link,        ///< a direct link to the seat that `grant` describes
  link_ended,  ///< the link to the seat `grant.port` has ended: its process has ended or ended the link
  uplink       ///< the uplink by sockets is up or down: `grant.uplink_up`
};

struct SwitchAnswer {
  SwitchHeader header;
  uint64_t number = 0;  ///< of the request; 0: unsolicited
  SwitchMessage message = SwitchMessage::answer;
  uint32_t link_side = 0;  ///< of a link: 0 or 1, one for each end
  uint32_t unused = 0;
  int32_t error = 0;  ///< an errno value; 0: success
  /// Answer to attach; of a link: the peer's. EADDRINUSE: that of the address, without a seat and a range, if
  /// the request was for an address that nobody else should have.
  SwitchGrant grant;
  std::array<char, 256> line{};  ///< reason of an error, for the user
};

// Padding between members would leak the sender's stack.
static_assert(std::has_unique_object_representations_v<SwitchRequest>);
static_assert(std::has_unique_object_representations_v<SwitchAnswer>);

}  // namespace faultline::glue
