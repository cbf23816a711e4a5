// SPDX-License-Identifier: BSD-3-Clause
// Converts a parsed packet to its meaning and back to a frame, and checks the property that every input of
// `parse` must have.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/packet.hpp"
#include "tests/unit/wire/capture.hpp"

namespace faultline::wire::test {

[[nodiscard]] PacketFields fields_of(const Packet& packet);

/// Returns a frame built by FrameTemplate; empty if it refuses.
[[nodiscard]] Frame build(const PathHeader& path, const PacketFields& fields,
                          std::span<const uint8_t> payload,
                          uint8_t checksums = static_cast<uint8_t>(Checksums::ip_in_software));

[[nodiscard]] inline Frame rebuild(const Packet& packet) {
  return build(path_of(packet), fields_of(packet), packet.payload());
}

/// Sets the bytes of the frame that its meaning does not determine to ones: reserved bits, pad, checksums,
/// IPv4 flags, ICRC and bytes after the packet.
void mask_free_bytes(const Packet& packet, std::span<uint8_t> frame);

/// The oracle of the fuzzer and of its replay. Parses `frame`, once as given and once with the checksums
/// marked as verified. If that succeeds, calls every accessor, each of which must stay in bounds. The rebuilt
/// frame must equal it in all bytes that the meaning determines. Returns a description of the failure, or an
/// empty string. Sets `parsed` if the frame was accepted.
[[nodiscard]] std::string check_parse(std::span<const uint8_t> frame, bool* parsed = nullptr);

}  // namespace faultline::wire::test
