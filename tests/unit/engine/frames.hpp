// SPDX-License-Identifier: BSD-3-Clause
// Frames of a peer that has no engine, and what the tests read from transmitted frames.
#pragma once

#include "tests/unit/engine/station.hpp"

namespace faultline::glue::test {

inline constexpr wire::MacAddress kPeerMac{{0x02, 0x46, 0xc6, 0x12, 0, 9}};
inline constexpr uint32_t kPeerIp = 0xc6120009;  // 198.18.0.9
/// fe80::9.
inline constexpr wire::Gid kPeerIpv6{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}};

/// A broadcast ARP request of the peer.
[[nodiscard]] Frame arp_request(uint32_t target_ip, const wire::VlanTag& vlan = {});
/// A neighbour solicitation of the peer to the target's group.
[[nodiscard]] Frame solicitation(const wire::Gid& target);
/// An ICMP echo request of the peer to the station's first address.
[[nodiscard]] Frame echo_request(const Station& to);
/// A SEND of the peer to QPN `qpn` of the station, along the path that `change` leaves.
[[nodiscard]] Frame roce_frame(const Station& to, uint32_t qpn,
                               const std::function<void(wire::PathHeader&)>& change = nullptr);

/// The parsed RoCEv2 packet of a frame; valid as long as the frame is. Fails the test if it does not parse.
[[nodiscard]] wire::Packet packet_of(const Frame& frame);
[[nodiscard]] wire::Opcode opcode_of(const Frame& frame);
[[nodiscard]] std::vector<wire::Opcode> opcodes_of(const std::vector<Frame>& frames);

}  // namespace faultline::glue::test
