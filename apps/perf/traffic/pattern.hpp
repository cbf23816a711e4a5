// SPDX-License-Identifier: BSD-3-Clause
// Verification pattern: every byte depends on the message's number and on the byte's offset in the message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace faultline::perf {

void fill_pattern(std::span<uint8_t> bytes, uint64_t message);
/// Returns the number of bytes that differ from the pattern.
[[nodiscard]] uint64_t count_wrong(std::span<const uint8_t> bytes, uint64_t message);

}  // namespace faultline::perf
