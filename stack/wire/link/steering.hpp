// SPDX-License-Identifier: BSD-3-Clause
// Fields by which a switch selects a frame's receiver: the MAC addresses. If several processes share one,
// also the QPN of a RoCEv2 packet or the IDs in a connection manager message. These functions do not validate
// the frame; the receiver does.
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
/// nullopt if the frame is shorter than an Ethernet header.
[[nodiscard]] std::optional<EthernetAddresses> peek_ethernet(std::span<const uint8_t> frame);

/// Returns the destination QPN of a frame of kind roce, for steering only. Returns kMulticastQpn if the frame
/// is too short to have one; the receiver counts it as malformed.
[[nodiscard]] uint32_t peek_destination_qpn(std::span<const uint8_t> frame);

/// True for a frame, which classify called roce, whose BTH is that of an RC acknowledgement and whose AETH
/// has no NAK: it only completes what the receiver has sent.
[[nodiscard]] bool is_plain_ack(std::span<const uint8_t> frame);

/// Returns the IP destination of a frame of kind roce.
[[nodiscard]] std::optional<Gid> peek_destination_gid(std::span<const uint8_t> frame);

/// Returns the IP source of a frame that classify called roce, ipv4_other or ipv6_other; nullopt if it is too
/// short.
[[nodiscard]] std::optional<Gid> peek_source_gid(std::span<const uint8_t> frame);

/// Returns the connection manager message in a frame of kind roce to kManagementQpn, or nullopt if there is
/// none. receiver_id and service_id of the message identify its receiver.
[[nodiscard]] std::optional<CmMad> peek_cm_message(std::span<const uint8_t> frame);

/// True if the frame, of any kind, has a length that a frame with a management datagram may have. Cheaper
/// than peek_cm_message.
[[nodiscard]] bool may_have_cm_message(std::span<const uint8_t> frame);

/// Replaces the message in a frame that has one (peek_cm_message) and updates the ICRC. Returns the frame's
/// length without bytes after the ICRC, or 0 if the frame has no message.
[[nodiscard]] size_t replace_cm_message(std::span<uint8_t> frame, const MadBytes& message);

}  // namespace faultline::wire
