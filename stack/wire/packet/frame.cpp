// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/packet/frame.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "stack/wire/packet/blocks.hpp"
#include "stack/wire/packet/bth_bytes.hpp"
#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/checksum.hpp"
#include "stack/wire/packet/icrc.hpp"
#include "stack/wire/packet/layout.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::wire {
namespace {

constexpr uint32_t pad_of(uint32_t payload_bytes) {
  return (0U - payload_bytes) & 3U;
}

constexpr uint64_t join(uint32_t high, uint32_t low) {
  return uint64_t{high} << 32 | low;
}

uint8_t* write_reth(uint8_t* at, const Reth& reth) {
  store_be128(at, reth.va, join(reth.rkey, reth.length_bytes));
  return at + 16;
}

uint8_t* write_deth(uint8_t* at, const Deth& deth) {
  store_be64(at, join(deth.qkey, deth.source_qpn & kQpnMask));
  return at + 8;
}

uint8_t* write_aeth(uint8_t* at, const Aeth& aeth) {
  store_be32(at, uint32_t{aeth.syndrome} << 24 | (aeth.msn & Psn::kMask));
  return at + 4;
}

/// A computed zero is sent as all ones (RFC 768): zero means "none".
void store_udp_sum(std::span<uint8_t> frame, uint32_t udp_at, uint16_t sum) {
  store_be16(frame.data() + udp_at + kUdpChecksumAt, sum == 0xffff ? sum : static_cast<uint16_t>(~sum));
}

/// Writes the opcode's extended headers in the order of IBA table 38 and returns their end.
uint8_t* write_any_extended(uint8_t* at, uint16_t headers, const PacketFields& fields) {
  if ((headers & kXrcEth) != 0) {
    store_be32(at, fields.xrc_srq_number & kXrcSrqMask);
    at += 4;
  }
  if ((headers & kDeth) != 0) at = write_deth(at, fields.deth);
  if ((headers & kFeth) != 0) {
    store_be32(at, (fields.feth.placement_type & kFethPlacementMask) |
                       (fields.feth.selectivity & kFethSelectivityMask) << kFethSelectivityShift);
    at += 4;
  }
  if ((headers & kReth) != 0) at = write_reth(at, fields.reth);
  if ((headers & kAtomicEth) != 0) {
    store_be64(at, fields.atomic_eth.va);
    store_be32(at + 8, fields.atomic_eth.rkey);
    store_be64(at + 12, fields.atomic_eth.swap_or_add);
    store_be64(at + 20, fields.atomic_eth.compare);
    at += 28;
  }
  if ((headers & kAeth) != 0) at = write_aeth(at, fields.aeth);
  if ((headers & kAtomicAckEth) != 0) {
    store_be64(at, fields.atomic_ack);
    at += 8;
  }
  if ((headers & kImmDt) != 0) {
    store_be32(at, fields.immediate);
    at += 4;
  }
  if ((headers & kIeth) != 0) {
    store_be32(at, fields.invalidate_rkey);
    at += 4;
  }
  if ((headers & kCnpReserved) != 0) {
    std::memset(at, 0, 16);
    at += 16;
  }
  if ((headers & kSackEth) != 0) {
    for (const uint64_t word : fields.sack_eth.map) {
      store_be64(at, word);
      at += 8;
    }
  }
  return at;
}

[[gnu::always_inline]] inline uint8_t* write_extended(uint8_t* at, uint16_t headers,
                                                      const PacketFields& fields) {
  // The usual cases.
  if (headers == 0) return at;
  if (headers == kReth) return write_reth(at, fields.reth);
  if (headers == kAeth) return write_aeth(at, fields.aeth);
  if (headers == kDeth) return write_deth(at, fields.deth);
  return write_any_extended(at, headers, fields);
}

}  // namespace

FrameTemplate::FrameTemplate(const PathHeader& path, uint8_t checksums)
    : ipv6_(!path.destination_gid.is_ipv4()), checksums_(checksums), destination_mac_(path.destination_mac) {
  assert(path.source_gid.is_ipv4() == path.destination_gid.is_ipv4());
  std::memcpy(bytes_, path.destination_mac.bytes.data(), 6);
  std::memcpy(bytes_ + 6, path.source_mac.bytes.data(), 6);
  ip_offset_ = kEthernetBytes;
  if (path.has_vlan) {
    store_be16(bytes_ + 12, kEtherTypeVlan);
    store_be16(bytes_ + 14, path.vlan_tci);
    ip_offset_ = kEthernetBytes + kVlanTagBytes;
  }
  store_be16(bytes_ + ip_offset_ - 2, ipv6_ ? kEtherTypeIpv6 : kEtherTypeIpv4);

  uint8_t* ip = bytes_ + ip_offset_;
  if (ipv6_) {
    store_be32(ip, 6U << 28 | uint32_t{path.traffic_class} << 20 | (path.flow_label & kIpv6FlowLabelMask));
    ip[kIpv6NextHeaderAt] = kProtocolUdp;
    ip[kIpv6HopLimitAt] = path.hop_limit;
    std::memcpy(ip + kIpv6SourceAt, path.source_gid.bytes.data(), 16);
    std::memcpy(ip + kIpv6DestinationAt, path.destination_gid.bytes.data(), 16);
  } else {
    ip[0] = kIpv4VersionAndLength;
    ip[kIpv4TosAt] = path.traffic_class;
    store_be16(ip + kIpv4FragmentAt, kIpv4DontFragment);
    ip[kIpv4TtlAt] = path.hop_limit;
    ip[kIpv4ProtocolAt] = kProtocolUdp;
    store_be32(ip + kIpv4SourceAt, path.source_gid.ipv4());
    store_be32(ip + kIpv4DestinationAt, path.destination_gid.ipv4());
    ip_partial_sum_ = ones_sum({ip, kIpv4Bytes});
  }
  const bool by_socket = (checksums & static_cast<uint8_t>(Checksums::by_socket)) != 0;
  if (by_socket) identification_mask_ = 0;
  uint8_t* udp = ip + (ipv6_ ? kIpv6Bytes : kIpv4Bytes);
  store_be16(udp, by_socket ? kRoceUdpPort : path.udp_source_port);
  store_be16(udp + kUdpDestinationPortAt, kRoceUdpPort);
  header_bytes_ = static_cast<uint8_t>(udp + kUdpBytes - bytes_);
}

uint32_t FrameTemplate::payload_offset(Opcode opcode) const {
  return header_bytes_ + kBthBytes + opcode_info(opcode).extended_bytes;
}

uint32_t FrameTemplate::frame_bytes(Opcode opcode, uint32_t payload_bytes) const {
  return payload_offset(opcode) + payload_bytes + pad_of(payload_bytes) + kIcrcBytes;
}

uint8_t* FrameTemplate::write_headers(std::span<uint8_t> frame, const PacketFields& fields,
                                      uint32_t payload_bytes) const {
  const OpcodeInfo& info = opcode_info(fields.bth.opcode);
  assert(payload_bytes <= info.payload_max_bytes);
  const uint32_t pad_bytes = pad_of(payload_bytes);
  const uint32_t udp_bytes =
      kUdpBytes + kBthBytes + info.extended_bytes + payload_bytes + pad_bytes + kIcrcBytes;
  const uint32_t udp_at = header_bytes_ - kUdpBytes;
  if (frame.size() < udp_at + udp_bytes) return nullptr;

  // Written in the same block size that the ICRC loads; see store_be128.
  std::memcpy(frame.data(), bytes_, kEthernetBytes + kVlanTagBytes);
  const __m128i bth = bytes_of(fields.bth, pad_bytes);
  const uint8_t* constant = bytes_ + ip_offset_;
  uint8_t* ip = frame.data() + ip_offset_;
  if (ipv6_) {
    store_be64(ip, load_be64(constant) | uint64_t{udp_bytes} << 16);
    std::memcpy(ip + kIpv6SourceAt, constant + kIpv6SourceAt, 32);
    const uint64_t udp = __builtin_bswap64(load_be64(constant + kIpv6Bytes) | uint64_t{udp_bytes} << 16);
    const __m128i behind = _mm_srli_si128(bth, 4);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(ip + kIpv6Bytes),
                     _mm_unpacklo_epi64(_mm_cvtsi64_si128(static_cast<int64_t>(udp)), behind));
    _mm_storeu_si32(ip + kIpv6Bytes + kUdpBytes + 8, _mm_srli_si128(behind, 8));
    return write_extended(ip + kIpv6Bytes + kUdpBytes + kBthBytes, info.extended_headers, fields);
  }
  const uint32_t total_bytes = kIpv4Bytes + udp_bytes;
  const uint32_t identification = uint32_t{fields.ipv4_identification} & identification_mask_;
  const uint16_t checksum =
      (checksums_ & static_cast<uint8_t>(Checksums::ip_in_software)) != 0
          ? static_cast<uint16_t>(~fold_sum(ip_partial_sum_ + total_bytes + identification))
          : uint16_t{0};
  store_be64(ip, load_be64(constant) | uint64_t{total_bytes} << 32 | uint64_t{identification} << 16);
  store_be128(ip + kIpv4TtlAt, load_be64(constant + kIpv4TtlAt) | uint64_t{checksum} << 32,
              load_be64(constant + kIpv4DestinationAt));
  const uint32_t udp_length = __builtin_bswap32(udp_bytes << 16);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(ip + kIpv4Bytes + kUdpLengthAt),
                   _mm_or_si128(bth, _mm_cvtsi32_si128(static_cast<int>(udp_length))));
  return write_extended(ip + kIpv4Bytes + kUdpBytes + kBthBytes, info.extended_headers, fields);
}

uint32_t FrameTemplate::seal(std::span<uint8_t> frame, uint8_t* payload, uint32_t payload_bytes,
                             IcrcForm form) const {
  const uint32_t pad_bytes = pad_of(payload_bytes);
  uint8_t* const icrc = payload + payload_bytes + pad_bytes;
  const auto total_bytes = static_cast<uint32_t>(icrc + kIcrcBytes - frame.data());
  assert(frame.size() >= total_bytes);
  store_le32(icrc - pad_bytes, 0);  // the pad, and part of the ICRC field
  constexpr auto kRare =
      static_cast<uint8_t>(Checksums::no_icrc) | static_cast<uint8_t>(Checksums::udp_in_software);
  if ((checksums_ & kRare) == 0 && form == IcrcForm::specified) [[likely]]
    store_le32(icrc, icrc_of_ip_packet({frame.data() + ip_offset_, icrc}, ipv6_));
  else
    seal_otherwise(frame.first(total_bytes), form);
  return total_bytes;
}

void FrameTemplate::seal_otherwise(std::span<uint8_t> frame, IcrcForm form) const {
  const std::span<uint8_t> covered = frame.first(frame.size() - kIcrcBytes);
  uint32_t crc = has_icrc() ? icrc_of_ip_packet(covered.subspan(ip_offset_), ipv6_) : 0;
  if (form == IcrcForm::rxe_flush) crc = icrc_update(crc, covered.subspan(header_bytes_));
  store_le32(covered.data() + covered.size(), crc);
  if ((checksums_ & static_cast<uint8_t>(Checksums::udp_in_software)) != 0) write_udp_checksum(frame);
}

uint32_t FrameTemplate::icrc_of_headers(const uint8_t* frame, const uint8_t* payload) const {
  return icrc_of_ip_packet({frame + ip_offset_, payload}, ipv6_);
}

uint32_t FrameTemplate::seal_with_crc(std::span<uint8_t> frame, uint8_t* payload, uint32_t payload_bytes,
                                      uint32_t crc) const {
  const std::span<uint8_t> pad(payload + payload_bytes, pad_of(payload_bytes));
  uint8_t* const icrc = pad.data() + pad.size();
  const auto total_bytes = static_cast<uint32_t>(icrc + kIcrcBytes - frame.data());
  assert(frame.size() >= total_bytes);
  std::fill(pad.begin(), pad.end(), uint8_t{0});
  store_le32(icrc, icrc_update(crc, pad));
  if ((checksums_ & static_cast<uint8_t>(Checksums::udp_in_software)) != 0)
    write_udp_checksum(frame.first(total_bytes));
  return total_bytes;
}

void FrameTemplate::write_udp_checksum(std::span<uint8_t> frame) const {
  const uint32_t udp_at = header_bytes_ - kUdpBytes;
  store_udp_sum(frame, udp_at, udp_sum(frame.data() + ip_offset_, ipv6_, frame.subspan(udp_at)));
}

PathHeader path_of(const Packet& packet) {
  return {.source_mac = packet.source_mac(),
          .destination_mac = packet.destination_mac(),
          .source_gid = packet.source_gid(),
          .destination_gid = packet.destination_gid(),
          .udp_source_port = packet.udp_source_port(),
          .traffic_class = packet.traffic_class(),
          .hop_limit = packet.hop_limit(),
          .flow_label = packet.flow_label(),
          .has_vlan = packet.has_vlan,
          .vlan_tci = packet.vlan_tci};
}

PathHeader reversed(const PathHeader& path) {
  PathHeader back = path;
  std::swap(back.source_mac, back.destination_mac);
  std::swap(back.source_gid, back.destination_gid);
  return back;
}

bool change_payload(std::span<uint8_t> frame, bool port_computes_udp_checksum) {
  Packet packet;
  if (parse(frame, packet, kIpChecksumVerified | kUdpChecksumVerified) != ParseError::none) return false;
  if (packet.payload_bytes == 0) return false;
  const uint32_t end = packet.icrc_offset + kIcrcBytes;
  frame[packet.payload_offset + packet.payload_bytes - 1U] ^= 1U;
  const auto covered = frame.subspan(packet.ip_offset, packet.icrc_offset - packet.ip_offset);
  store_le32(frame.data() + packet.icrc_offset, icrc_by_library(covered, packet.ipv6));
  const uint32_t udp_at = packet.bth_offset - kUdpBytes;
  uint8_t* const checksum = frame.data() + udp_at + kUdpChecksumAt;
  if (port_computes_udp_checksum || load_be16(checksum) == 0) return true;
  store_be16(checksum, 0);
  store_udp_sum(frame, udp_at,
                udp_sum(frame.data() + packet.ip_offset, packet.ipv6, frame.first(end).subspan(udp_at)));
  return true;
}

}  // namespace faultline::wire
