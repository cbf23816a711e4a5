// SPDX-License-Identifier: BSD-3-Clause
// The two ECN bits of a frame's IP header (RFC 3168).
#pragma once

#include <cstdint>
#include <span>

namespace faultline::wire {

inline constexpr uint8_t kEcnMask = 3;
inline constexpr uint8_t kEcnCapable = 2;  ///< ECT(0)
inline constexpr uint8_t kEcnCongestionExperienced = 3;

/// Marks a packet as a congested switch does: sets congestion experienced in an ECN-capable IPv4 or IPv6
/// packet and updates the IPv4 header checksum. Returns false for any other frame, which is left unchanged.
bool mark_congestion_experienced(std::span<uint8_t> frame);

}  // namespace faultline::wire
