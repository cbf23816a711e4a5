// SPDX-License-Identifier: BSD-3-Clause
// What a process and faultline-switch say to each other over the wire's control socket (SOCK_SEQPACKET, one
// message a request and one an answer). Both are of one user on one host: host byte order. A connection is a
// seat: it begins with `attach`, and when it ends the seat is free.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace faultline::glue {

inline constexpr uint32_t kSwitchMagic = 0x464c5357;  // "FLSW"
inline constexpr uint32_t kSwitchVersion = 2;

/// The start of every message, in this and all later versions.
struct SwitchHeader {
  uint32_t magic = kSwitchMagic;
  uint32_t version = kSwitchVersion;
};

enum class SwitchVerb : uint32_t {
  attach,
  claim_service,  ///< connection requests to this service are this process's from now on
  release_service,
  join_group,  ///< and so are frames to this multicast group
  leave_group
};

/// Which fields count follows from the verb.
struct SwitchRequest {
  SwitchHeader header;
  /// The answer repeats it: one that comes after its asker gave up is nobody else's.
  uint64_t number = 0;
  SwitchVerb verb = SwitchVerb::attach;
  uint32_t ipv4 = 0;    ///< host order; 0: any
  uint32_t shared = 0;  ///< not 0: others may have the address too, if they say so as well
  // What the process had at a switch that died, so that its address and QPNs stay what its peers know.
  uint32_t range = 0;  ///< 0: any
  uint32_t port = 0;   ///< counts where range is not 0
  uint32_t unused = 0;
  uint64_t service_id = 0;
  std::array<uint8_t, 16> group{};
};

/// QPNs and communication ids are divided alike: a range is their top six bits. 0 and 63 hold QPNs that
/// nobody may have.
inline constexpr uint32_t kRangeBits = 6;
inline constexpr uint32_t kFirstRange = 1;
inline constexpr uint32_t kLastRange = (1U << kRangeBits) - 2;
inline constexpr uint32_t kQpnRangeShift = 24 - kRangeBits;
inline constexpr uint32_t kCommunicationRangeShift = 32 - kRangeBits;

inline constexpr size_t kSwitchPathBytes = 108;  // of a sockaddr_un

/// What a seat has.
struct SwitchGrant {
  uint32_t ipv4 = 0;
  uint32_t prefix_bits = 0;
  uint32_t shared = 0;
  uint32_t range = 0;
  uint32_t port = 0;
  uint32_t mtu_bytes = 0;  ///< layer 3
  std::array<uint8_t, 6> mac{};
  std::array<char, kSwitchPathBytes> memif_socket{};
  std::array<uint8_t, 2> unused{};

  [[nodiscard]] uint32_t first_qpn() const { return range << kQpnRangeShift; }
  [[nodiscard]] uint32_t last_qpn() const { return first_qpn() | ((1U << kQpnRangeShift) - 1); }
  [[nodiscard]] uint32_t communication_id_base() const { return range << kCommunicationRangeShift; }
  /// Bits that the process may choose.
  [[nodiscard]] uint32_t communication_id_mask() const { return (1U << kCommunicationRangeShift) - 1; }
};

struct SwitchAnswer {
  SwitchHeader header;
  uint64_t number = 0;           ///< of the request; 0: of none
  int32_t error = 0;             ///< an errno value; 0: done
  SwitchGrant grant;             ///< of attach
  std::array<char, 256> line{};  ///< why not, for people
};

// Bytes between members would come from the sender's stack.
static_assert(std::has_unique_object_representations_v<SwitchRequest>);
static_assert(std::has_unique_object_representations_v<SwitchAnswer>);

}  // namespace faultline::glue
