// SPDX-License-Identifier: BSD-3-Clause
// Builds RoCEv2 frames in place. A template holds what is constant for a path (Ethernet, IP, UDP); per packet
// the caller gives the meaning (PacketFields), writes the payload where it is told to, and seals the frame.
#pragma once

#include <cstdint>
#include <span>

#include "stack/wire/packet/headers.hpp"

namespace faultline::wire {

/// How packets of one path look below the BTH.
struct PathHeader {
  MacAddress source_mac;
  MacAddress destination_mac;
  Gid source_gid;  ///< both IPv4-mapped, or neither
  Gid destination_gid;
  uint16_t udp_source_port = 0xc000;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint32_t flow_label = 0;
  bool has_vlan = false;
  uint16_t vlan_tci = 0;
};

/// Which checksums this end computes in the frame; what the port offloads is left as the port wants it.
enum class Checksums : uint8_t {
  ip_in_software = 1U << 0,  ///< IPv4 header checksum written
  udp_in_software =
      1U << 1,  ///< UDP checksum over the payload; otherwise 0, "none", as RoCEv2 senders do (IBA A17.3.2)
  /// The ICRC is left 0, which no receiver takes that verifies it: for a wire of memory between processes
  /// that trust each other.
  no_icrc = 1U << 2,
  none = 0
};

/// rxe_flush: as has_rxe_flush_icrc says.
enum class IcrcForm : uint8_t { specified, rxe_flush };

/// A packet's meaning. Only the extended headers of the opcode are used.
struct PacketFields {
  Bth bth;  ///< pad_bytes is computed from the payload, not taken from here
  Reth reth;
  Aeth aeth;
  AtomicEth atomic_eth;
  Deth deth;
  uint64_t atomic_ack = 0;
  uint32_t immediate = 0;
  uint32_t invalidate_rkey = 0;
  Feth feth;
  SackEth sack_eth;
  uint32_t xrc_srq_number = 0;
  uint16_t ipv4_identification = 0;
};

class FrameTemplate {
 public:
  FrameTemplate() = default;
  explicit FrameTemplate(const PathHeader& path,
                         uint8_t checksums = static_cast<uint8_t>(Checksums::ip_in_software));

  /// Bytes of the whole frame for an opcode and payload, from Ethernet to ICRC.
  [[nodiscard]] uint32_t frame_bytes(Opcode opcode, uint32_t payload_bytes) const;

  /// Writes all headers of the packet, with its final lengths and checksums but the UDP one, to `frame`.
  /// Returns where the payload goes, or nullptr where `frame` is too small for the packet.
  [[nodiscard]] uint8_t* write_headers(std::span<uint8_t> frame, const PacketFields& fields,
                                       uint32_t payload_bytes) const;

  /// After the payload is in place: zero pad, UDP checksum where asked for, ICRC. Returns the frame's length.
  /// `frame` and `payload_bytes` as in write_headers, `payload` what it returned.
  uint32_t seal(std::span<uint8_t> frame, uint8_t* payload, uint32_t payload_bytes,
                IcrcForm form = IcrcForm::specified) const;
  /// For who has kept the opcode only.
  uint32_t seal(std::span<uint8_t> frame, Opcode opcode, uint32_t payload_bytes,
                IcrcForm form = IcrcForm::specified) const {
    return seal(frame, frame.data() + payload_offset(opcode), payload_bytes, form);
  }

  /// Whether a payload that is copied into the frame is better summed up in that copy.
  [[nodiscard]] bool wants_crc_in_copy(uint32_t payload_bytes) const {
    return payload_bytes >= kCrcInCopyBytes && has_icrc();
  }
  /// For a payload whose CRC is taken while it is copied: the ICRC's state over the headers of a frame, to go
  /// on over the payload from; `payload` is what write_headers returned.
  [[nodiscard]] uint32_t icrc_of_headers(const uint8_t* frame, const uint8_t* payload) const;
  /// As seal, with the ICRC's state over headers and payload.
  uint32_t seal_with_crc(std::span<uint8_t> frame, uint8_t* payload, uint32_t payload_bytes,
                         uint32_t crc) const;

  [[nodiscard]] bool ipv6() const { return ipv6_; }
  [[nodiscard]] const MacAddress& destination_mac() const { return destination_mac_; }

 private:
  /// Below this one sum over headers and payload is less work than two.
  static constexpr uint32_t kCrcInCopyBytes = 256;

  [[nodiscard]] bool has_icrc() const { return (checksums_ & static_cast<uint8_t>(Checksums::no_icrc)) == 0; }
  [[nodiscard]] uint32_t payload_offset(Opcode opcode) const;
  /// The end of a whole frame, with all that few paths ask for.
  void seal_otherwise(std::span<uint8_t> frame, IcrcForm form) const;
  void write_udp_checksum(std::span<uint8_t> frame) const;

  // The constant bytes up to the BTH, and where the variable fields sit in them.
  alignas(16) uint8_t bytes_[18 + 40 + 8] = {};
  uint8_t header_bytes_ = 0;  ///< up to the BTH
  uint8_t ip_offset_ = 0;
  bool ipv6_ = false;
  uint8_t checksums_ = 0;
  uint32_t ip_partial_sum_ = 0;  ///< IPv4 header sum over the constant fields
  MacAddress destination_mac_;
};

}  // namespace faultline::wire
