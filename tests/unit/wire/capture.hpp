// SPDX-License-Identifier: BSD-3-Clause
// Reads and writes classic pcap files of Ethernet frames, as far as the tests need the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace faultline::wire::test {

using Frame = std::vector<uint8_t>;

/// Returns the frames of a file. Throws std::runtime_error unless it holds complete Ethernet frames in a
/// little-endian pcap file.
[[nodiscard]] std::vector<Frame> read_capture(const std::filesystem::path& path);

void write_capture(const std::filesystem::path& path, std::span<const Frame> frames);

/// Returns the golden captures of tests/data/wire, sorted by name.
[[nodiscard]] std::vector<std::filesystem::path> golden_captures();
[[nodiscard]] std::filesystem::path golden_directory();

}  // namespace faultline::wire::test
