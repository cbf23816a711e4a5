// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/story/captured_packet.hpp"

#include <algorithm>
#include <optional>

namespace faultline::story {
namespace {

constexpr size_t kMacBytes = 12;
constexpr uint16_t kIpv4 = 0x0800;
constexpr uint16_t kIpv6 = 0x86dd;
constexpr size_t kMostBytes = 65536;

struct Network {
  uint16_t ether_type = 0;
  size_t offset = 0;  ///< of the bytes after the EtherType
};

uint16_t be16(std::span<const uint8_t> bytes, size_t at) {
  return static_cast<uint16_t>(bytes[at] << 8 | bytes[at + 1]);
}

/// nullopt: too short, or a link type that cannot carry RoCEv2.
std::optional<Network> network_of(const CapturedFrame& frame) {
  const std::span<const uint8_t> bytes = frame.bytes;
  switch (frame.link) {
    case LinkType::ethernet:
      if (bytes.size() < kMacBytes + 2) return std::nullopt;
      return Network{be16(bytes, kMacBytes), kMacBytes + 2};
    case LinkType::linux_cooked:
      if (bytes.size() < 16) return std::nullopt;
      return Network{be16(bytes, 14), 16};
    case LinkType::linux_cooked_2:
      if (bytes.size() < 20) return std::nullopt;
      return Network{be16(bytes, 0), 20};
    case LinkType::raw_ip:
    case LinkType::ipv4:
    case LinkType::ipv6:
      if (bytes.empty()) return std::nullopt;
      return Network{bytes[0] >> 4 == 6 ? kIpv6 : kIpv4, 0};
  }
  return std::nullopt;
}

bool is_roce_error(wire::ParseError error) {
  switch (error) {
    case wire::ParseError::runt:
    case wire::ParseError::not_ip:
    case wire::ParseError::ip_header:
    case wire::ParseError::ip_fragment:
    case wire::ParseError::not_udp:
    case wire::ParseError::udp_port:
      return false;
    default:
      return true;
  }
}

}  // namespace

FrameContent PacketReader::read(const CapturedFrame& frame, wire::Packet& packet) {
  const std::optional<Network> network = network_of(frame);
  if (!network) return FrameContent::other;
  // A cut frame is filled with zeros: the headers are read, and the payload is not.
  const size_t cut_bytes =
      frame.original_bytes > frame.bytes.size() ? frame.original_bytes - frame.bytes.size() : 0;
  const size_t rest_bytes = frame.bytes.size() - network->offset + cut_bytes;
  if (rest_bytes > kMostBytes) return FrameContent::other;
  whole_.assign(kMacBytes + 2 + rest_bytes, 0);
  if (frame.link == LinkType::ethernet) std::copy_n(frame.bytes.begin(), kMacBytes, whole_.begin());
  whole_[kMacBytes] = static_cast<uint8_t>(network->ether_type >> 8);
  whole_[kMacBytes + 1] = static_cast<uint8_t>(network->ether_type);
  std::copy(frame.bytes.begin() + static_cast<ptrdiff_t>(network->offset), frame.bytes.end(),
            whole_.begin() + kMacBytes + 2);
  // A sender that leaves checksums to its NIC is captured before they are computed.
  constexpr uint8_t kUnchecked = wire::kIpChecksumVerified | wire::kUdpChecksumVerified;
  const wire::ParseError error = wire::parse(whole_, packet, kUnchecked);
  if (error == wire::ParseError::none) return FrameContent::roce;
  return is_roce_error(error) ? FrameContent::invalid_roce : FrameContent::other;
}

}  // namespace faultline::story
