// SPDX-License-Identifier: BSD-3-Clause
// The ICRC of IPv4 packets whose identification this host does not choose or see. Linux splits a train of
// datagrams (UDP_SEGMENT, udp(7)) into packets with the identifications 0, 1, 2, ..., other senders count
// their packets, and a receiver's socket hides the identification.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::wire {

/// Packets of a train at most: UDP_MAX_SEGMENTS of Linux before 6.9.
inline constexpr uint32_t kMostTrainPackets = 64;

/// Returns the identification with which the ICRC of an IPv4 packet is right; nullopt if there is none. There
/// is at most one, since a CRC-32 detects every change of 16 bits in a row.
///
/// One of 65536 packets with any damage has such an identification too: it alone decides 16 bits. The caller
/// checks that the sender may have given it.
[[nodiscard]] std::optional<uint16_t> hidden_identification(const Packet& packet,
                                                            IcrcForm form = IcrcForm::specified);

/// By how much an identification below kMostTrainPackets changes the ICRC. A CRC is linear: the change
/// depends on the length of the packet alone. Keeps the changes of one length.
class IdentificationIcrc {
 public:
  /// Changes the ICRC at the end of a UDP payload, sealed for identification 0.
  void renumber(std::span<uint8_t> udp_payload, uint32_t identification);

 private:
  [[nodiscard]] uint32_t change_of(uint32_t identification) const;
  void use_length(uint32_t udp_payload_bytes);

  static constexpr size_t kBits = 6;
  static_assert(1U << kBits == kMostTrainPackets);
  uint32_t udp_payload_bytes_ = 0;
  std::array<uint32_t, kBits> of_bit_{};  ///< of_bit_[i]: identification 2^i instead of 0
};

}  // namespace faultline::wire
