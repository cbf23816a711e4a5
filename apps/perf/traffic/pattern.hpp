// SPDX-License-Identifier: BSD-3-Clause
// Bytes that tell where they belong: every byte depends on the message's number and on its place in the
// message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace faultline::perf {

void fill_pattern(std::span<uint8_t> bytes, uint64_t message);
/// Bytes that differ from the pattern.
[[nodiscard]] uint64_t count_wrong(std::span<const uint8_t> bytes, uint64_t message);

}  // namespace faultline::perf
