// SPDX-License-Identifier: BSD-3-Clause
// Selects the frames on a link that belong to a device: by VLAN, MAC address, IP addresses and joined
// multicast groups. Ports may deliver every frame on the wire (promiscuous mode, or a link of two), so this
// check is first.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "stack/wire/link/link.hpp"
#include "stack/wire/packet/blocks.hpp"
#include "stack/wire/packet/byte_order.hpp"
#include "stack/wire/packet/layout.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::wire {

enum class Admission : uint8_t { accepted, wrong_vlan, wrong_address };

class AddressFilter {
 public:
  static constexpr size_t kMaxOwn = 32;
  static constexpr size_t kMaxGroups = 128;

  /// `own` has at most kMaxOwn addresses.
  AddressFilter(const MacAddress& mac, const VlanTag& vlan, std::span<const Gid> own);

  /// Checks a frame; `kind` is the result of classify. ARP, neighbour and other messages are checked for VLAN
  /// and MAC address only; their parsers check the rest. A frame with VLAN id 0 is in no VLAN (IEEE 802.1Q,
  /// 6.9).
  [[nodiscard]] Admission admit(std::span<const uint8_t> frame, FrameKind kind) const;

  /// True for the usual frame: RoCEv2 over IPv4 to the device's first address, untagged. classify then
  /// returns roce and admit returns accepted. False has no meaning: the frame may still be accepted.
  [[nodiscard]] bool is_common_case(std::span<const uint8_t> frame) const {
    if (frame.size() < kEthernetBytes + kIpv4Bytes + kUdpBytes) return false;
    const auto load = [](const uint8_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); };
    const auto differing = [&](uint32_t frame_at, size_t at) {
      const __m128i bytes = _mm_and_si128(load(frame.data() + frame_at), load(common_mask_.data() + at));
      return _mm_xor_si128(bytes, load(common_.data() + at));
    };
    const __m128i differs = _mm_or_si128(differing(0, 0), differing(kCommonIpAt, sizeof(__m128i)));
    return _mm_testz_si128(differs, differs) != 0;
  }

  /// False if there is no room for another group.
  [[nodiscard]] bool join(const Gid& group);
  void leave(const Gid& group);
  [[nodiscard]] bool any_group() const { return group_count_ != 0; }
  /// For a frame of kind roce: true if its destination is a group that the device has joined.
  [[nodiscard]] bool to_joined_group(std::span<const uint8_t> frame) const;

 private:
  /// The six bytes as one number, for comparison only.
  [[nodiscard]] static uint64_t mac_word(const uint8_t* mac) {
    return uint64_t{load_le16(mac + 4)} << 32 | load_le32(mac);
  }
  /// Sets what is_common_case compares.
  void set_common_case(const MacAddress& mac);
  [[nodiscard]] bool is_own_ipv4(uint32_t address) const;
  [[nodiscard]] bool is_own_ipv6(const uint8_t* address) const;
  [[nodiscard]] bool is_joined(const Gid& group) const;

  /// The second block of 16 bytes that is_common_case compares ends with the UDP destination port.
  static constexpr uint32_t kCommonIpAt = kEthernetBytes + kIpv4TtlAt;
  using CommonBlocks = std::array<uint8_t, 2 * sizeof(__m128i)>;
  alignas(sizeof(__m128i)) CommonBlocks common_;
  alignas(sizeof(__m128i)) CommonBlocks common_mask_;
  const uint64_t mac_;      ///< as mac_word of a frame's first bytes
  const uint16_t vlan_id_;  ///< 0: none
  // Separate arrays, since the IPv4 one is searched for every packet.
  std::array<uint32_t, kMaxOwn> own_ipv4_{};
  std::array<Gid, kMaxOwn> own_ipv6_{};
  size_t own_ipv4_count_ = 0;
  size_t own_ipv6_count_ = 0;
  std::array<Gid, kMaxGroups> groups_{};
  size_t group_count_ = 0;
};

}  // namespace faultline::wire
