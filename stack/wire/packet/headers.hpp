// SPDX-License-Identifier: BSD-3-Clause
// Headers as values in host order. Only packet.hpp and frame.hpp read and write their bytes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "stack/wire/packet/opcode.hpp"
#include "stack/wire/packet/psn.hpp"

namespace faultline::wire {

inline constexpr uint16_t kRoceUdpPort = 4791;
inline constexpr uint16_t kDefaultPkey = 0xffff;
inline constexpr uint16_t kPkeyBaseMask = 0x7fff;  ///< without the membership bit
inline constexpr uint32_t kQpnMask = 0xffffffU;
inline constexpr uint32_t kXrcSrqMask = 0xffffffU;
inline constexpr uint32_t kMulticastQpn = 0xffffffU;
inline constexpr uint32_t kGrhBytes = 40;
inline constexpr uint32_t kIcrcBytes = 4;
inline constexpr uint32_t kMinPathMtuBytes = 256;
inline constexpr uint32_t kMaxPathMtuBytes = 4096;
/// Overhead of the longest packet: Ethernet + one VLAN tag 18, IPv6 40, UDP 8, BTH 12, XRCETH 4, AtomicETH
/// 28, pad 3, ICRC 4.
inline constexpr uint32_t kMaxFrameOverheadBytes = 18 + 40 + 8 + 12 + 4 + 28 + 3 + 4;
inline constexpr uint32_t kMaxFrameBytes = kMaxPathMtuBytes + kMaxFrameOverheadBytes;

struct MacAddress {
  std::array<uint8_t, 6> bytes{};
  friend bool operator==(const MacAddress&, const MacAddress&) = default;
};

/// An IP address as a GID: IPv4 is IPv4-mapped (::ffff:a.b.c.d), as RoCEv2 GIDs are (IBA A17.4.5).
struct Gid {
  std::array<uint8_t, 16> bytes{};
  /// Compares ten bytes of 0 and two of 0xff as a word and half a word (little endian).
  [[nodiscard]] bool is_ipv4() const {
    const auto words = std::bit_cast<std::array<uint64_t, 2>>(bytes);
    return words[0] == 0 && static_cast<uint32_t>(words[1]) == 0xffff'0000U;
  }
  [[nodiscard]] bool is_zero() const { return bytes == std::array<uint8_t, 16>{}; }
  [[nodiscard]] bool is_multicast() const { return is_ipv4() ? bytes[12] >> 4 == 0xe : bytes[0] == 0xff; }
  static Gid from_ipv4(uint32_t address) {
    Gid gid;
    gid.bytes[10] = gid.bytes[11] = 0xff;
    for (int i = 0; i < 4; ++i) gid.bytes[12 + i] = static_cast<uint8_t>(address >> (24 - 8 * i));
    return gid;
  }
  /// Host order; valid only if is_ipv4().
  [[nodiscard]] uint32_t ipv4() const {
    return uint32_t{bytes[12]} << 24 | uint32_t{bytes[13]} << 16 | uint32_t{bytes[14]} << 8 | bytes[15];
  }
  friend bool operator==(const Gid&, const Gid&) = default;
};

/// Two of the bytes have their bits as on the wire, so that one byte permutation reads or writes a whole BTH.
struct Bth {
  uint16_t pkey = kDefaultPkey;
  uint8_t header_version : 4 = 0;
  uint8_t pad_bytes : 2 = 0;
  bool migration : 1 = true;  ///< MigReq: hardware sends 1 in the migrated state (IBA 17.2.8); rxe sends 0
  bool solicited : 1 = false;
  Opcode opcode = Opcode::rc_send_only;
  uint32_t destination_qpn = 0;
  Psn psn;
  uint8_t reserved_beside_congestion : 6 = 0;
  bool becn : 1 = false;
  bool fecn : 1 = false;
  /// The lowest of the seven reserved bits next to AckReq: the sender understands rc_selective_ack. Other
  /// stacks ignore reserved bits on receipt (IBA 9.2).
  bool selective_ack : 1 = false;
  /// The next two bits, only in responses to a peer that has set selective_ack. page_fault with an RNR NAK: a
  /// page is missing, not a receive. page_fault with a positive acknowledgement: the next packet has arrived
  /// and waits for its page. page_ready: the page of an earlier RNR NAK is resident.
  bool page_fault : 1 = false;
  bool page_ready : 1 = false;
  uint8_t reserved_beside_ack : 4 = 0;
  bool ack_request : 1 = false;
  uint16_t unused = 0;
};
static_assert(sizeof(Bth) == 16 && offsetof(Bth, opcode) == 3 && offsetof(Bth, destination_qpn) == 4 &&
              offsetof(Bth, psn) == 8 && offsetof(Bth, unused) == 14);

/// Bits of the byte that contains AckReq.
enum AckBits : uint8_t { kSelectiveAckBit = 1U << 0, kAckRequestBit = 1U << 7 };

/// Builds the fields of most packets in registers. Stores of single fields would delay a later load of the
/// whole value.
[[nodiscard]] inline Bth make_bth(Opcode opcode, bool solicited, uint32_t destination_qpn, Psn psn,
                                  uint8_t ack_bits) {
  constexpr uint32_t kMigration = 1U << 22;
  constexpr unsigned kSolicitedShift = 23;
  const uint32_t flags = uint32_t{static_cast<uint8_t>(opcode)} << 24 |
                         uint32_t{solicited} << kSolicitedShift | kMigration | kDefaultPkey;
  return std::bit_cast<Bth>(std::array<uint64_t, 2>{uint64_t{destination_qpn} << 32 | flags,
                                                    uint64_t{ack_bits} << 40 | psn.value()});
}

/// Maximum message length (IBA 9.7.4.1.6).
inline constexpr uint32_t kMaxMessageBytes = 1U << 31;

/// Number of packets of a message of at most 2^32 - 1 bytes; an empty message has one packet.
[[nodiscard]] constexpr uint32_t packets_of(uint32_t message_bytes, uint32_t mtu_bytes) {
  return message_bytes <= mtu_bytes ? 1 : (message_bytes - 1) / mtu_bytes + 1;
}

struct Reth {
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t length_bytes = 0;
};
struct Aeth {
  uint8_t syndrome = 0;
  uint32_t msn = 0;
};
struct AtomicEth {
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint64_t swap_or_add = 0;
  uint64_t compare = 0;
};
struct Deth {
  uint32_t qkey = 0;
  uint32_t source_qpn = 0;
};
/// FLUSH extended header: placement type (1 global visibility, 2 persistence) and selectivity (0 range, 1
/// region); IBA A19.
struct Feth {
  uint8_t placement_type = 0;
  uint8_t selectivity = 0;
};

/// Packets that a responder holds after the missing one: bit i of the map is the PSN of the BTH + 1 + i.
struct SackEth {
  static constexpr uint32_t kPackets = 256;
  std::array<uint64_t, kPackets / 64> map{};
  [[nodiscard]] bool has(uint32_t i) const { return (map[i / 64] >> (i % 64) & 1) != 0; }
  void add(uint32_t i) { map[i / 64] |= uint64_t{1} << (i % 64); }
  friend bool operator==(const SackEth&, const SackEth&) = default;
};

/// AETH syndromes (IBA 9.7.5.2.1). The top three bits are the kind, the low five are credits, timer or code.
inline constexpr uint8_t kAethAck = 0x00;
inline constexpr uint8_t kAethRnrNak = 0x20;
inline constexpr uint8_t kAethNak = 0x60;
inline constexpr uint8_t kAethKindMask = 0x60;
inline constexpr uint8_t kAethValueMask = 0x1f;
inline constexpr uint8_t kAethCreditsInvalid = 0x1f;  ///< "no credit limit"

enum class NakCode : uint8_t {
  psn_sequence_error = 0,
  invalid_request = 1,
  remote_access_error = 2,
  remote_operational_error = 3,
  invalid_rd_request = 4
};

}  // namespace faultline::wire
