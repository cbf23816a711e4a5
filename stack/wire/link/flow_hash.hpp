// SPDX-License-Identifier: BSD-3-Clause
// The Toeplitz hash by which NICs distribute packets over their receive queues (receive side scaling).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace faultline::wire {

/// Returns the Toeplitz hash of `input`. A key shorter than the input and four bytes counts as followed by
/// zeros.
[[nodiscard]] uint32_t toeplitz_hash(std::span<const uint8_t> key, std::span<const uint8_t> input);

/// Returns the hash of a frame of kind roce over its IP addresses, and with `ports` its UDP ports; nullopt if
/// the frame is too short.
[[nodiscard]] std::optional<uint32_t> flow_hash(std::span<const uint8_t> frame, std::span<const uint8_t> key,
                                                bool ports);

}  // namespace faultline::wire
