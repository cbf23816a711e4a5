// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/wire/meaning.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

namespace faultline::wire::test {

PacketFields fields_of(const Packet& packet) {
  PacketFields fields;
  fields.bth = packet.bth;
  if (packet.info->has(kReth)) fields.reth = packet.reth();
  if (packet.info->has(kAeth)) fields.aeth = packet.aeth();
  if (packet.info->has(kAtomicEth)) fields.atomic_eth = packet.atomic_eth();
  if (packet.info->has(kDeth)) fields.deth = packet.deth();
  if (packet.info->has(kAtomicAckEth)) fields.atomic_ack = packet.atomic_ack();
  if (packet.info->has(kImmDt)) fields.immediate = packet.immediate();
  if (packet.info->has(kIeth)) fields.invalidate_rkey = packet.invalidate_rkey();
  if (packet.info->has(kFeth)) fields.feth = packet.feth();
  if (packet.info->has(kXrcEth)) fields.xrc_srq_number = packet.xrc_srq_number();
  if (packet.info->has(kSackEth)) fields.sack_eth = packet.sack_eth();
  fields.ipv4_identification = packet.ipv4_identification();
  return fields;
}

Frame build(const PathHeader& path, const PacketFields& fields, std::span<const uint8_t> payload,
            uint8_t checksums) {
  const FrameTemplate frame_template(path, checksums);
  const auto payload_bytes = static_cast<uint32_t>(payload.size());
  // Exactly the required length, so that the sanitizers detect an overrun. Earlier contents must not show.
  Frame frame(frame_template.frame_bytes(fields.bth.opcode, payload_bytes), uint8_t{0xa5});
  uint8_t* to = frame_template.write_headers(frame, fields, payload_bytes);
  if (to == nullptr) return {};
  std::copy(payload.begin(), payload.end(), to);
  if (frame_template.seal(frame, fields.bth.opcode, payload_bytes) != frame.size()) return {};
  return frame;
}

void mask_free_bytes(const Packet& packet, std::span<uint8_t> frame) {
  const auto mask = [&frame](size_t at, size_t bytes) { std::memset(frame.data() + at, 0xff, bytes); };
  uint8_t* bth = frame.data() + packet.bth_offset;
  if (!packet.ipv6) {
    mask(packet.ip_offset + 6U, 1);
    mask(packet.ip_offset + 10U, 2);
  }
  mask(packet.bth_offset - 2U, 2);
  bth[4] |= 0x3f;
  bth[8] |= 0x7f;
  const auto at = [&packet](ExtendedHeader header) {
    return packet.extended_offset + packet.info->offset_of(header);
  };
  if (packet.info->has(kXrcEth)) mask(at(kXrcEth), 1);
  if (packet.info->has(kDeth)) mask(at(kDeth) + 4, 1);
  if (packet.info->has(kFeth)) {
    mask(at(kFeth), 3);
    frame[at(kFeth) + 3] |= 0xc0;
  }
  if (packet.info->has(kCnpReserved)) mask(at(kCnpReserved), 16);
  const size_t payload_end = packet.payload_offset + size_t{packet.payload_bytes};
  mask(payload_end, frame.size() - payload_end);
}

namespace {

std::string check_accepted(std::span<const uint8_t> frame, const Packet& packet) {
  const uint32_t end = packet.icrc_offset + kIcrcBytes;
  if (packet.frame != frame.data() || end > frame.size()) return "ICRC out of bounds";
  if (packet.payload_offset + packet.payload_bytes + packet.bth.pad_bytes != packet.icrc_offset)
    return "payload and pad do not end at the ICRC";
  if (packet.payload_bytes > kMaxPathMtuBytes) return "payload longer than any path MTU";
  if (!packet.info->known || packet.info != &opcode_info(packet.bth.opcode)) return "wrong table row";

  std::array<uint8_t, kGrhBytes> grh;
  packet.write_grh(grh);
  const bool icrc_right = icrc_matches(packet);

  Frame rebuilt = rebuild(packet);
  if (rebuilt.size() != end) return "rebuilt with another length";
  Packet again;
  if (const ParseError error = parse(rebuilt, again); error != ParseError::none)
    return "rebuilt frame does not parse: " + std::string(name_of(error));
  if (!icrc_matches(again)) return "rebuilt frame has a wrong ICRC";

  Frame original(frame.begin(), frame.begin() + end);
  Frame masked_original = original;
  Frame masked_rebuilt = rebuilt;
  mask_free_bytes(packet, masked_original);
  mask_free_bytes(again, masked_rebuilt);
  if (masked_original != masked_rebuilt) return "rebuilt frame means something else";
  // If all bytes before the ICRC are equal, the ICRC must be equal.
  if (std::equal(original.begin(), original.end() - kIcrcBytes, rebuilt.begin()) &&
      icrc_right != (original == rebuilt))
    return "ICRC of the same bytes differs";
  return {};
}

}  // namespace

std::string check_parse(std::span<const uint8_t> frame, bool* parsed) {
  if (parsed != nullptr) *parsed = false;
  // A heap block of exactly this length, so that AddressSanitizer detects a read beyond it.
  const auto exact = std::make_unique<uint8_t[]>(frame.size());
  std::copy(frame.begin(), frame.end(), exact.get());
  const std::span<const uint8_t> bytes(exact.get(), frame.size());
  const FrameKind kind = classify(bytes);
  for (const unsigned checks :
       {unsigned{kNothingVerified}, unsigned{kIpChecksumVerified} | kUdpChecksumVerified}) {
    Packet packet;
    if (parse(bytes, packet, static_cast<uint8_t>(checks)) != ParseError::none) continue;
    if (parsed != nullptr) *parsed = true;
    if (kind != FrameKind::roce) return "accepted, but classified as something else";
    if (std::string wrong = check_accepted(bytes, packet); !wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace faultline::wire::test
