// SPDX-License-Identifier: BSD-3-Clause
// Builds RoCEv2 frames in place. A template holds the constant headers of a path (Ethernet, IP, UDP). For
// each packet the caller passes its fields (PacketFields), writes the payload to the returned address, and
// seals the frame.
#pragma once

#include <cstdint>
#include <span>

#include "stack/wire/packet/headers.hpp"

namespace faultline::wire {

/// Headers below the BTH for the packets of a path.
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
  friend bool operator==(const PathHeader&, const PathHeader&) = default;
};

struct Packet;
/// Returns the path of a received or built packet. Its template builds further packets of the same sender.
[[nodiscard]] PathHeader path_of(const Packet& packet);
/// Returns the way back: source and destination exchanged.
[[nodiscard]] PathHeader reversed(const PathHeader& path);

/// Changes the lowest bit of the payload's last byte and recomputes the ICRC, and the UDP checksum if there
/// is one, unless the port computes it. Returns false for a frame without a payload, which is left unchanged.
bool change_payload(std::span<uint8_t> frame, bool port_computes_udp_checksum);

/// Checksums computed here. Those that the port offloads are left as the port expects them.
enum class Checksums : uint8_t {
  ip_in_software = 1U << 0,  ///< IPv4 header checksum written
  /// UDP checksum computed; otherwise 0, "none", as RoCEv2 senders do (IBA A17.3.2).
  udp_in_software = 1U << 1,
  /// The ICRC is left 0, which a receiver that verifies it rejects. For shared-memory links between processes
  /// that trust each other.
  no_icrc = 1U << 2,
  /// A UDP socket sends the packet: the source port is kRoceUdpPort, to which the socket is bound. The IPv4
  /// identification is 0, as Linux sends it from an unconnected socket with IP_PMTUDISC_DO (ip(7)).
  by_socket = 1U << 3,
  none = 0
};

/// rxe_flush: see has_rxe_flush_icrc.
enum class IcrcForm : uint8_t { specified, rxe_flush };

/// Fields of a packet. Only the extended headers of the opcode are used.
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

  /// Returns the length of the whole frame for an opcode and payload, from Ethernet to ICRC.
  [[nodiscard]] uint32_t frame_bytes(Opcode opcode, uint32_t payload_bytes) const;

  /// Writes all headers of the packet to `frame`, with final lengths and all checksums except UDP. Returns
  /// the payload's address, or nullptr if `frame` is too small for the packet.
  [[nodiscard]] uint8_t* write_headers(std::span<uint8_t> frame, const PacketFields& fields,
                                       uint32_t payload_bytes) const;

  /// Completes the frame after the payload is written: zero pad, UDP checksum if configured, ICRC. Returns
  /// the frame's length. `frame` and `payload_bytes` are as in write_headers, and `payload` is its result.
  uint32_t seal(std::span<uint8_t> frame, uint8_t* payload, uint32_t payload_bytes,
                IcrcForm form = IcrcForm::specified) const;
  /// For callers that kept only the opcode.
  uint32_t seal(std::span<uint8_t> frame, Opcode opcode, uint32_t payload_bytes,
                IcrcForm form = IcrcForm::specified) const {
    return seal(frame, frame.data() + payload_offset(opcode), payload_bytes, form);
  }

  /// True if computing the payload's CRC while copying it is faster.
  [[nodiscard]] bool wants_crc_in_copy(uint32_t payload_bytes) const {
    return payload_bytes >= kCrcInCopyBytes && has_icrc();
  }
  /// Returns the ICRC state over the headers of a frame, to be continued over the payload while it is copied.
  /// `payload` is the result of write_headers.
  [[nodiscard]] uint32_t icrc_of_headers(const uint8_t* frame, const uint8_t* payload) const;
  /// As seal, with the ICRC state over headers and payload.
  uint32_t seal_with_crc(std::span<uint8_t> frame, uint8_t* payload, uint32_t payload_bytes,
                         uint32_t crc) const;

  /// True if it has no path yet.
  [[nodiscard]] bool is_empty() const { return header_bytes_ == 0; }
  [[nodiscard]] bool ipv6() const { return ipv6_; }
  [[nodiscard]] const MacAddress& destination_mac() const { return destination_mac_; }

 private:
  /// Below this size one CRC over headers and payload costs less than two.
  static constexpr uint32_t kCrcInCopyBytes = 256;

  [[nodiscard]] bool has_icrc() const { return (checksums_ & static_cast<uint8_t>(Checksums::no_icrc)) == 0; }
  [[nodiscard]] uint32_t payload_offset(Opcode opcode) const;
  /// Seals a complete frame with the options that few paths use.
  void seal_otherwise(std::span<uint8_t> frame, IcrcForm form) const;
  void write_udp_checksum(std::span<uint8_t> frame) const;

  // The constant bytes up to the BTH, and the positions of the variable fields in them.
  alignas(16) uint8_t bytes_[18 + 40 + 8] = {};
  uint8_t header_bytes_ = 0;  ///< up to the BTH
  uint8_t ip_offset_ = 0;
  bool ipv6_ = false;
  uint8_t checksums_ = 0;
  uint16_t identification_mask_ = 0xffff;  ///< 0: the identification is always 0
  uint32_t ip_partial_sum_ = 0;            ///< sum of the constant IPv4 header fields
  MacAddress destination_mac_;
};

}  // namespace faultline::wire
