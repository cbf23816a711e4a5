// SPDX-License-Identifier: BSD-3-Clause
// What a switch looks at in a frame to know whose it is: MAC addresses, and, among those who share one, the
// QPN of a RoCEv2 packet or what a connection manager's message names. Nothing here says that a frame is
// sound: whoever gets it will look again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "stack/wire/link/link.hpp"
#include "stack/wire/mad/mad.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::wire {

struct EthernetAddresses {
  MacAddress destination;
  MacAddress source;
};
/// Nothing where the frame is shorter than an Ethernet header.
[[nodiscard]] std::optional<EthernetAddresses> peek_ethernet(std::span<const uint8_t> frame);

/// The destination QPN of a frame of kind roce, for steering alone; kMulticastQpn where the frame is too
/// short to have one (whoever gets it will count it as broken).
[[nodiscard]] uint32_t peek_destination_qpn(std::span<const uint8_t> frame);

/// The IP destination of a frame of kind roce.
[[nodiscard]] std::optional<Gid> peek_destination_gid(std::span<const uint8_t> frame);

/// The IP source of a frame that classify called roce, ipv4_other or ipv6_other; nothing where it is too
/// short.
[[nodiscard]] std::optional<Gid> peek_source_gid(std::span<const uint8_t> frame);

/// The connection manager's message in a frame of kind roce to kManagementQpn, which says whose it is by
/// receiver_id and service_id; nothing where there is none.
[[nodiscard]] std::optional<CmMad> peek_cm_message(std::span<const uint8_t> frame);

/// True where the frame, of any kind, is of a length that a frame with a management datagram may have: a look
/// that costs less than peek_cm_message.
[[nodiscard]] bool may_have_cm_message(std::span<const uint8_t> frame);

/// Puts another message into a frame that has one (peek_cm_message), with its ICRC: the length of the frame,
/// without what was behind the ICRC, or 0 where it has none.
[[nodiscard]] size_t replace_cm_message(std::span<uint8_t> frame, const MadBytes& message);

}  // namespace faultline::wire
