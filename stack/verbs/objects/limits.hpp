// SPDX-License-Identifier: BSD-3-Clause
// The limits that query_device reports and that the create and post calls enforce.
#pragma once

#include <cstdint>

namespace faultline::verbs {

// Moderate, because some programs create the largest objects that a device reports, and creation touches the
// rings.
inline constexpr uint32_t kMaxQps = 32768;
inline constexpr uint32_t kMaxQpWr = 16384;
inline constexpr uint32_t kMaxSge = 16;
inline constexpr uint32_t kMaxInlineBytes = 1024;
inline constexpr uint32_t kMaxCqs = 65536;
inline constexpr uint32_t kMaxCqe = 262144;
inline constexpr uint32_t kMaxMrs = 1U << 20;
inline constexpr uint64_t kMaxMrBytes = uint64_t{1} << 46;
inline constexpr uint32_t kMaxPds = 65536;
inline constexpr uint32_t kMaxAhs = 1U << 20;
inline constexpr uint32_t kMaxMws = 1U << 20;
inline constexpr uint32_t kMaxSrqs = 32768;
inline constexpr uint32_t kMaxSrqWr = 16384;
inline constexpr uint32_t kMaxXrcds = 65536;
inline constexpr uint32_t kMaxMulticastGroups = 128;
inline constexpr uint32_t kMaxQpsPerMulticastGroup = 1024;
inline constexpr uint8_t kMaxRdAtomic = 128;
/// IBA 9.7.7: a message is at most 2^31 bytes.
inline constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 31;
inline constexpr uint32_t kMaxCounters = 65536;
inline constexpr int kGidTableLength = 16;
inline constexpr int kPkeyTableLength = 1;
inline constexpr uint8_t kPortNumber = 1;
inline constexpr uint8_t kDefaultHopLimit = 64;

}  // namespace faultline::verbs
