// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/wire/reference_packet.hpp"

#include <algorithm>

namespace faultline::wire::test {
namespace {

using Bytes = std::vector<uint8_t>;

void put(Bytes& to, uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) to.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

template <typename Container>
void append(Bytes& to, const Container& from) {
  // GCC 16 warns of array-bounds inside an insert of a span.
  for (const uint8_t byte : from) to.push_back(byte);
}

void put_at(std::span<uint8_t> bytes, size_t at, uint16_t value) {
  bytes[at] = static_cast<uint8_t>(value >> 8);
  bytes[at + 1] = static_cast<uint8_t>(value);
}

size_t ip_header_bytes(bool ipv6) {
  return ipv6 ? 40 : 20;
}

}  // namespace

uint32_t plain_crc32(std::span<const uint8_t> bytes) {
  uint32_t crc = 0xffffffffU;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? crc >> 1 ^ 0xedb88320U : crc >> 1;
  }
  return ~crc;
}

uint16_t plain_checksum(std::span<const uint8_t> bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i < bytes.size(); i += 2) {
    sum += uint32_t{bytes[i]} << 8;
    if (i + 1 < bytes.size()) sum += bytes[i + 1];
    if (sum > 0xffff) sum -= 0xffff;
  }
  return static_cast<uint16_t>(~sum);
}

uint16_t plain_udp_checksum(std::span<const uint8_t> ip_packet, bool ipv6) {
  const std::span<const uint8_t> udp = ip_packet.subspan(ip_header_bytes(ipv6));
  Bytes summed;
  append(summed, ipv6 ? ip_packet.subspan(8, 32) : ip_packet.subspan(12, 8));
  put(summed, 17, 4);
  put(summed, udp.size(), 4);
  append(summed, udp);
  return plain_checksum(summed);
}

uint32_t plain_icrc(std::span<const uint8_t> ip_packet_without_icrc, bool ipv6) {
  Bytes masked(8, 0xff);
  append(masked, ip_packet_without_icrc);
  const auto ones = [&masked](size_t at) { masked[8 + at] = 0xff; };
  if (ipv6) {
    masked[8] |= 0x0f;
    for (const size_t at : {1, 2, 3, 7}) ones(at);
  } else {
    for (const size_t at : {1, 8, 10, 11}) ones(at);
  }
  const size_t udp_at = ip_header_bytes(ipv6);
  for (const size_t at : {udp_at + 6, udp_at + 7, udp_at + 8 + 4}) ones(at);
  return plain_crc32(masked);
}

Frame plain_frame(const PathHeader& path, std::span<const uint8_t> transport, uint16_t ipv4_identification,
                  uint32_t icrc_xor) {
  const bool ipv6 = !path.destination_gid.is_ipv4();
  Frame frame;
  append(frame, path.destination_mac.bytes);
  append(frame, path.source_mac.bytes);
  if (path.has_vlan) {
    put(frame, 0x8100, 2);
    put(frame, path.vlan_tci, 2);
  }
  put(frame, ipv6 ? 0x86dd : 0x0800, 2);
  const size_t ip_at = frame.size();
  const uint64_t udp_bytes = 8 + transport.size() + 4;
  if (ipv6) {
    put(frame, 0x60000000U | uint32_t{path.traffic_class} << 20 | path.flow_label, 4);
    put(frame, udp_bytes, 2);
    put(frame, 17, 1);
    put(frame, path.hop_limit, 1);
    append(frame, path.source_gid.bytes);
    append(frame, path.destination_gid.bytes);
  } else {
    put(frame, 0x45, 1);
    put(frame, path.traffic_class, 1);
    put(frame, 20 + udp_bytes, 2);
    put(frame, ipv4_identification, 2);
    put(frame, 0x4000, 2);
    put(frame, path.hop_limit, 1);
    put(frame, 17, 1);
    put(frame, 0, 2);
    put(frame, path.source_gid.ipv4(), 4);
    put(frame, path.destination_gid.ipv4(), 4);
    put_at(frame, ip_at + 10, plain_checksum(std::span(frame).subspan(ip_at)));
  }
  put(frame, path.udp_source_port, 2);
  put(frame, 4791, 2);
  put(frame, udp_bytes, 2);
  put(frame, 0, 2);
  append(frame, transport);
  const uint32_t icrc = transport.size() >= 12 ? plain_icrc(std::span(frame).subspan(ip_at), ipv6) : 0;
  put(frame, __builtin_bswap32(icrc ^ icrc_xor), 4);
  return frame;
}

Bytes plain_transport(const PacketFields& fields, std::span<const uint8_t> payload) {
  const uint32_t pad_bytes = static_cast<uint32_t>((4 - payload.size() % 4) % 4);
  const auto opcode = static_cast<uint8_t>(fields.bth.opcode);
  Bytes bytes;
  put(bytes, opcode, 1);
  put(bytes, (fields.bth.solicited ? 0x80U : 0) | (fields.bth.migration ? 0x40U : 0) | pad_bytes << 4, 1);
  put(bytes, fields.bth.pkey, 2);
  put(bytes, (fields.bth.fecn ? 0x80U : 0) | (fields.bth.becn ? 0x40U : 0), 1);
  put(bytes, fields.bth.destination_qpn, 3);
  put(bytes, (fields.bth.ack_request ? 0x80U : 0) | (fields.bth.selective_ack ? 1U : 0), 1);
  put(bytes, fields.bth.psn.value(), 3);

  const uint8_t base = opcode & 0x1f;
  const bool ud = opcode >> 5 == 3;
  const bool cnp = opcode == 0x81;
  const bool sack = opcode == 0xc0;
  const auto is = [&](std::initializer_list<uint8_t> bases) {
    return !cnp && !sack && std::find(bases.begin(), bases.end(), base) != bases.end();
  };
  const bool request = !is({0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12});
  if (opcode >> 5 == 5 && request) put(bytes, fields.xrc_srq_number, 4);
  if (ud) {
    put(bytes, fields.deth.qkey, 4);
    put(bytes, fields.deth.source_qpn, 4);
  }
  if (is({0x1c})) put(bytes, fields.feth.selectivity << 4 | fields.feth.placement_type, 4);
  if (is({0x06, 0x0a, 0x0b, 0x0c, 0x1c, 0x1d})) {
    put(bytes, fields.reth.va, 8);
    put(bytes, fields.reth.rkey, 4);
    put(bytes, fields.reth.length_bytes, 4);
  }
  if (is({0x13, 0x14})) {
    put(bytes, fields.atomic_eth.va, 8);
    put(bytes, fields.atomic_eth.rkey, 4);
    put(bytes, fields.atomic_eth.swap_or_add, 8);
    put(bytes, fields.atomic_eth.compare, 8);
  }
  if (sack || is({0x0d, 0x0f, 0x10, 0x11, 0x12})) {
    put(bytes, fields.aeth.syndrome, 1);
    put(bytes, fields.aeth.msn, 3);
  }
  if (is({0x12})) put(bytes, fields.atomic_ack, 8);
  if (is({0x03, 0x05, 0x09, 0x0b})) put(bytes, fields.immediate, 4);
  if (is({0x16, 0x17})) put(bytes, fields.invalidate_rkey, 4);
  if (sack)
    for (const uint64_t word : fields.sack_eth.map) put(bytes, word, 8);
  if (cnp) bytes.insert(bytes.end(), 16, 0);
  append(bytes, payload);
  bytes.insert(bytes.end(), pad_bytes, 0);
  return bytes;
}

PathHeader ipv4_path() {
  return {.source_mac = {{0x02, 0x46, 0x4c, 1, 2, 3}},
          .destination_mac = {{0x02, 0x46, 0x4c, 4, 5, 6}},
          .source_gid = Gid::from_ipv4(0xc0000201),
          .destination_gid = Gid::from_ipv4(0xc633640c),
          .udp_source_port = 0xd1e7,
          .traffic_class = 0x6a,
          .hop_limit = 37,
          .flow_label = 0,
          .has_vlan = false,
          .vlan_tci = 0};
}

PathHeader ipv6_path() {
  PathHeader path = ipv4_path();
  path.source_gid = {{0x20, 0x01, 0x0d, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
  path.destination_gid = {
      {0x20, 0x01, 0x0d, 0xb8, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc}};
  path.flow_label = 0x9abcd;
  return path;
}

PathHeader with_vlan(PathHeader path) {
  path.has_vlan = true;
  path.vlan_tci = 0x6123;
  return path;
}

PacketFields sample_fields(Opcode opcode) {
  PacketFields fields;
  fields.bth = {.pkey = 0x8f31,
                .header_version = 0,
                .pad_bytes = 0,
                .migration = true,
                .solicited = true,
                .opcode = opcode,
                .destination_qpn = 0x123456,
                .psn = Psn(0xfedcba),
                .becn = false,
                .fecn = true,
                .selective_ack = true,
                .ack_request = true};
  fields.reth = {.va = 0x0123456789abcdef, .rkey = 0xdeadbeef, .length_bytes = 0x00c0ffee};
  fields.aeth = {.syndrome = 0x6b, .msn = 0x765432};
  fields.atomic_eth = {.va = 0xfedcba9876543210,
                       .rkey = 0xcafef00d,
                       .swap_or_add = 0x1112131415161718,
                       .compare = 0x2122232425262728};
  fields.deth = {.qkey = 0x80010203, .source_qpn = 0xabcdef};
  fields.atomic_ack = 0x3132333435363738;
  fields.immediate = 0x41424344;
  fields.invalidate_rkey = 0x51525354;
  fields.feth = {.placement_type = 2, .selectivity = 1};
  fields.sack_eth.map = {0x6364656667686970, 0x7172737475767778, 0x8182838485868788, 0x9192939495969798};
  fields.xrc_srq_number = 0xa1a2a3;
  fields.ipv4_identification = 0x6162;
  return fields;
}

Bytes sample_payload(size_t bytes) {
  Bytes payload(bytes);
  uint32_t state = 0x9e3779b9U;
  for (uint8_t& byte : payload) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return payload;
}

}  // namespace faultline::wire::test
